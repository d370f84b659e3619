package memstore

import (
	"bytes"
	"unsafe"
)

// A reusedBuffer is a buffer that keys are slices of, and that is overwritten.
type reusedBuffer []byte

func newReusedBuffer(n int) reusedBuffer { return bytes.Repeat([]byte("k"), n+1) }

func (b reusedBuffer) key() string { return unsafe.String(&b[0], len(b)-1) }

func (b reusedBuffer) overwrite() {
	for i := range b {
		b[i] = 'x'
	}
}
