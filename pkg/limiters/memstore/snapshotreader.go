package memstore

import (
	"bufio"
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
	buf  []byte
	crc  uint64
	err  error // the first error
}

// next returns the next n bytes, valid until the next call. It allocates as bytes arrive rather
// than trusting n.
func (in *snapshotReader) next(n int) []byte {
	const step = 1 << 20
	for read := 0; read < n && in.err == nil; {
		to := min(n, read+step)
		if to > len(in.buf) {
			in.buf = append(in.buf, make([]byte, to-len(in.buf))...)
		}
		got, err := io.ReadFull(in.from, in.buf[read:to])
		read += got
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends too early", ErrDamaged)
		}
		in.err = err
	}
	if in.err != nil {
		return nil
	}
	in.crc = crc64.Update(in.crc, crcTable, in.buf[:n])
	return in.buf[:n]
}

// number returns the next n bytes as a number, at most 8.
func (in *snapshotReader) number(n int) uint64 {
	var b [8]byte
	copy(b[:], in.next(n))
	return binary.LittleEndian.Uint64(b[:])
}

// fail sets the error, unless there is one.
func (in *snapshotReader) fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

func (in *snapshotReader) head() (algorithms []string, saved time.Time) {
	found := string(in.next(len(magic)))
	if found != magic && (in.err == nil || errors.Is(in.err, ErrDamaged)) {
		in.err = ErrForeign
	}
	if v := in.number(4); v != version {
		in.fail(fmt.Errorf("%w: its format is %d: want %d", ErrVersion, v, version))
	}
	saved = time.UnixMicro(int64(in.number(8)))
	for range in.number(1) {
		algorithms = append(algorithms, string(in.next(int(in.number(1)))))
	}
	return algorithms, saved
}

// key returns the fields of the next key; nil after the last one.
func (in *snapshotReader) key() []byte {
	length := in.number(4)
	if length > maxRecordBytes {
		in.fail(fmt.Errorf("%w: a key of %d bytes", ErrDamaged, length))
	}
	if length == 0 {
		return nil
	}
	return in.next(int(length))
}

// tail checks the number of keys, the checksum and the end of the file.
func (in *snapshotReader) tail(count uint64) {
	keys := in.number(8)
	crc := in.crc // after the read above, and before the next, which changes it
	if checksum := in.number(8); keys != count || checksum != crc {
		in.fail(fmt.Errorf("%w: the checksum does not match", ErrDamaged))
	}
	if in.err != nil {
		return
	}
	switch _, err := in.from.ReadByte(); {
	case err == nil:
		in.err = fmt.Errorf("%w: bytes follow its end", ErrDamaged)
	case !errors.Is(err, io.EOF):
		in.err = err
	}
}

// A keyReader reads the fields of a key. After a missing field, all further fields are 0.
type keyReader struct {
	b      []byte
	failed bool
}

func (f *keyReader) bytes(n uint64) []byte {
	if f.failed || n > uint64(len(f.b)) {
		f.failed = true
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

func (f *keyReader) byte() byte {
	if b := f.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *keyReader) int64() int64 {
	if b := f.bytes(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (f *keyReader) uvarint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.failed = true
		return 0
	}
	f.bytes(uint64(n))
	return v
}

func (f *keyReader) text() string { return string(f.bytes(f.uvarint())) }
