// Package lines reads lines of bounded length.
package lines

import (
	"bufio"
	"bytes"
	"errors"
)

// A Reader reads lines. Create it with [NewReader].
type Reader struct {
	Number int64 // the number of the last line, from 1

	in      *bufio.Reader
	maximum int // bytes of a line with its end
	line    []byte
	err     error
}

// NewReader returns a Reader of lines that have at most maximum bytes with their ends.
func NewReader(in *bufio.Reader, maximum int) *Reader { return &Reader{in: in, maximum: maximum} }

// Next returns the next line with its end, which only the last line may lack. The line is valid
// until the next call, and empty if it is too long. A byte order mark before the first line is
// skipped. After the last line, the error is that of the input, io.EOF at its end.
func (r *Reader) Next() (line []byte, tooLong bool, err error) {
	if r.err != nil {
		return nil, false, r.err
	}
	r.line = r.line[:0]
	for first := true; ; first = false {
		part, err := r.in.ReadSlice('\n')
		if first && len(part) > 0 {
			r.Number++
			if r.Number == 1 {
				part = bytes.TrimPrefix(part, []byte("\ufeff"))
			}
		}
		if len(r.line)+len(part) > r.maximum {
			tooLong, r.line = true, r.line[:0]
		}
		if !tooLong {
			r.line = append(r.line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		r.err = err
		if err != nil && first && len(part) == 0 {
			return nil, false, err
		}
		return r.line, tooLong, nil
	}
}
