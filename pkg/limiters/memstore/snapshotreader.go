package memstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"time"
)

// A snapshotReader reads the parts of a snapshot in order and computes its checksum. After an error
// it reads zeros and nil.
type snapshotReader struct {
	from *bufio.Reader
	part io.LimitedReader // of from; a field, because a local variable would be allocated
	buf  bytes.Buffer
	crc  uint64
	err  error // the first error
}

// next returns the next n bytes, valid until the next call. It allocates as bytes arrive rather
// than trusting n.
func (r *snapshotReader) next(n int) []byte {
	if r.err != nil {
		return nil
	}
	r.buf.Reset()
	r.part = io.LimitedReader{R: r.from, N: int64(n)}
	if _, r.err = r.buf.ReadFrom(&r.part); r.err == nil && r.part.N > 0 {
		r.err = fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	if r.err != nil {
		return nil
	}
	r.crc = crc64.Update(r.crc, crcTable, r.buf.Bytes())
	return r.buf.Bytes()
}

// number returns the next n bytes as a number, at most 8.
func (r *snapshotReader) number(n int) uint64 {
	var b [8]byte
	copy(b[:], r.next(n))
	return binary.LittleEndian.Uint64(b[:])
}

// fail sets the error, unless there is one.
func (r *snapshotReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *snapshotReader) head() (algorithms []string, saved time.Time) {
	found := string(r.next(len(magic)))
	if found != magic && (r.err == nil || errors.Is(r.err, ErrDamaged)) {
		r.err = ErrForeign
	}
	if v := r.number(4); v != version {
		r.fail(fmt.Errorf("%w: its format is %d: want %d", ErrVersion, v, version))
	}
	saved = time.UnixMicro(int64(r.number(8)))
	for range r.number(1) {
		algorithms = append(algorithms, string(r.next(int(r.number(1)))))
	}
	return algorithms, saved
}

// nextKey returns the fields of the next key; nil after the last one.
func (r *snapshotReader) nextKey() []byte {
	length := r.number(4)
	if length > maxRecordBytes {
		r.fail(fmt.Errorf("%w: a key of %d bytes", ErrDamaged, length))
	}
	if length == 0 {
		return nil
	}
	return r.next(int(length))
}

// checkTail checks the number of keys, the checksum and the end of the file.
func (r *snapshotReader) checkTail(count uint64) {
	keys := r.number(8)
	crc := r.crc // after the read above, and before the next, which changes it
	if checksum := r.number(8); keys != count || checksum != crc {
		r.fail(fmt.Errorf("%w: the checksum does not match", ErrDamaged))
	}
	if r.err != nil {
		return
	}
	switch _, err := r.from.ReadByte(); {
	case err == nil:
		r.err = fmt.Errorf("%w: bytes follow its end", ErrDamaged)
	case !errors.Is(err, io.EOF):
		r.err = err
	}
}

// A keyReader reads the fields of a key. After a missing field, all further fields are 0.
type keyReader struct {
	rest   []byte
	failed bool
}

func (r *keyReader) bytes(n uint64) []byte {
	if r.failed || n > uint64(len(r.rest)) {
		r.failed = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *keyReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *keyReader) int64() int64 {
	if b := r.bytes(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (r *keyReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.failed = true
		return 0
	}
	r.bytes(uint64(n))
	return v
}

func (r *keyReader) text() string { return string(r.bytes(r.uvarint())) }
