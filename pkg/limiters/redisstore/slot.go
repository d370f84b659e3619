package redisstore

import "strings"

// slots is how many slots a cluster has.
const slots = 16384

// slotOf is the slot of a key, as the cluster specification has it: the CRC16 (XMODEM) of what stands between the first
// { and the first } after it, or of the whole key where there is nothing.
func slotOf(key string) uint16 {
	if _, rest, found := strings.Cut(key, "{"); found {
		if end := strings.IndexByte(rest, '}'); end > 0 {
			key = rest[:end]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slots
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
