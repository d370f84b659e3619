package accesslog

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
)

// A sorter sorts texts by their times. Texts of equal times stay in order. Beyond max bytes it writes sorted runs to temporary files,
// and merges them at the end.
type sorter struct {
	max  int
	dir  string
	text []byte
	all  []timed
	runs []*os.File
}

// A timed is a text of sorter.text.
type timed struct {
	at       int64 // µs since 1970
	from, to int
}

func (s *sorter) add(at int64, text []byte) error {
	const overhead = 24
	if len(s.text)+len(text)+overhead*len(s.all) > s.max && len(s.all) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	from := len(s.text)
	s.text = append(s.text, text...)
	s.all = append(s.all, timed{at, from, len(s.text)})
	return nil
}

func (s *sorter) sort() {
	slices.SortStableFunc(s.all, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
}

// spill writes the texts in memory to a run: a temporary file without a name.
func (s *sorter) spill() error {
	s.sort()
	file, err := os.CreateTemp(s.dir, "weir-convert-*")
	if err != nil {
		return err
	}
	_ = os.Remove(file.Name()) // the file lives until it is closed
	s.runs = append(s.runs, file)
	w := bufio.NewWriterSize(file, 1<<16) // it returns its first error at Flush
	for _, t := range s.all {
		var head [12]byte
		binary.LittleEndian.PutUint64(head[:], uint64(t.at))
		binary.LittleEndian.PutUint32(head[8:], uint32(t.to-t.from))
		_, _ = w.Write(head[:])
		_, _ = w.Write(s.text[t.from:t.to])
	}
	s.text, s.all = s.text[:0], s.all[:0]
	return w.Flush()
}

// write writes all texts in order.
func (s *sorter) write(w io.Writer) error {
	if len(s.runs) == 0 {
		s.sort()
		for _, t := range s.all {
			if _, err := w.Write(s.text[t.from:t.to]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	return s.merge(w)
}

func (s *sorter) close() error {
	var errs []error
	for _, file := range s.runs {
		errs = append(errs, file.Close())
	}
	s.runs, s.text, s.all = nil, nil, nil
	return errors.Join(errs...)
}

// A run is a sorted file with its next record.
type run struct {
	in   *bufio.Reader
	at   int64
	text []byte
}

// next reads the next record. The error is io.EOF at the end.
func (r *run) next() error {
	var head [12]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return err
	}
	r.at = int64(binary.LittleEndian.Uint64(head[:]))
	length := int(binary.LittleEndian.Uint32(head[8:]))
	r.text = slices.Grow(r.text[:0], length)[:length]
	_, err := io.ReadFull(r.in, r.text)
	return err
}

// merge writes the records of all runs in order. Records of equal times are in the order of the runs.
func (s *sorter) merge(w io.Writer) error {
	var open []*run
	for _, file := range s.runs {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		r := &run{in: bufio.NewReaderSize(file, 1<<16)}
		if err := r.next(); err != nil { // no run is empty
			return err
		}
		open = append(open, r)
	}
	for len(open) > 0 {
		first := slices.MinFunc(open, func(a, b *run) int { return cmp.Compare(a.at, b.at) })
		if _, err := w.Write(first.text); err != nil {
			return err
		}
		if err := first.next(); errors.Is(err, io.EOF) {
			open = slices.DeleteFunc(open, func(r *run) bool { return r == first })
		} else if err != nil {
			return err
		}
	}
	return nil
}
