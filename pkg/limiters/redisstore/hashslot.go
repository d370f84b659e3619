package redisstore

import "strings"

// slotCount is the number of hash slots of a cluster.
const slotCount = 16384

// hashSlotOf returns the hash slot of a key: the CRC16 (XMODEM) of its hash tag, or of the whole
// key if it has none. The hash tag is the text, if not empty, between the first { and the first }
// after it.
func hashSlotOf(key string) uint16 {
	if _, rest, found := strings.Cut(key, "{"); found {
		if end := strings.IndexByte(rest, '}'); end > 0 {
			key = rest[:end]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slotCount
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
