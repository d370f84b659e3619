package rulesfile

import (
	"crypto/sha256"
	"encoding/binary"
)

// Fingerprint returns a hash of the names, texts and order of files: 32 arbitrary bytes.
func Fingerprint(files []File) string {
	h := sha256.New()
	var length [8]byte
	part := func(b []byte) {
		binary.LittleEndian.PutUint64(length[:], uint64(len(b)))
		h.Write(length[:])
		h.Write(b)
	}
	for _, file := range files {
		part([]byte(file.Name))
		part(file.Data)
	}
	return string(h.Sum(nil))
}
