package memstore

import (
	"bytes"
	"unsafe"
)

// A message is a buffer that keys are slices of, and that is overwritten.
type message []byte

func newMessage(n int) message { return bytes.Repeat([]byte("k"), n+1) }

func (m message) key() string { return unsafe.String(&m[0], len(m)-1) }

func (m message) overwrite() {
	for i := range m {
		m[i] = 'x'
	}
}
