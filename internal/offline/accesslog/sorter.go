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

// A sorter sorts texts by their times. Texts of equal times stay in order. Beyond max bytes it
// writes sorted runs to temporary files, and merges them at the end.
type sorter struct {
	max  int
	dir  string
	text []byte
	all  []timedText
	runs []*os.File
}

// A timedText is a text of sorter.text.
type timedText struct {
	at       int64 // µs since 1970
	from, to int
}

// maxRuns bounds the files that are open at once. More runs are merged into one.
const maxRuns = 64

func (s *sorter) add(at int64, text []byte) error {
	const overhead = 24
	if len(s.text)+len(text)+overhead*len(s.all) > s.max && len(s.all) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	from := len(s.text)
	s.text = append(s.text, text...)
	s.all = append(s.all, timedText{at, from, len(s.text)})
	return nil
}

func (s *sorter) sort() {
	slices.SortStableFunc(s.all, func(a, b timedText) int { return cmp.Compare(a.at, b.at) })
}

// spill writes the texts in memory to a run.
func (s *sorter) spill() error {
	s.sort()
	err := s.newRun(func(w *bufio.Writer) error {
		for _, t := range s.all {
			if err := writeRecord(w, t.at, s.text[t.from:t.to]); err != nil {
				return err
			}
		}
		return nil
	})
	s.text, s.all = s.text[:0], s.all[:0]
	if err == nil && len(s.runs) == maxRuns {
		err = s.mergeRuns()
	}
	return err
}

// newRun writes a temporary file, which has no name, and adds it to the runs.
func (s *sorter) newRun(write func(*bufio.Writer) error) error {
	file, err := os.CreateTemp(s.dir, "weir-convert-*")
	if err != nil {
		return err
	}
	_ = os.Remove(file.Name()) // the file lives until it is closed
	s.runs = append(s.runs, file)
	w := bufio.NewWriterSize(file, 1<<16)
	return cmp.Or(write(w), w.Flush())
}

// mergeRuns replaces all runs by one.
func (s *sorter) mergeRuns() error {
	old := s.runs
	s.runs = nil
	err := s.newRun(func(w *bufio.Writer) error {
		return merge(old, func(at int64, text []byte) error { return writeRecord(w, at, text) })
	})
	for _, file := range old {
		err = errors.Join(err, file.Close())
	}
	return err
}

func writeRecord(w *bufio.Writer, at int64, text []byte) error {
	var head [12]byte
	binary.LittleEndian.PutUint64(head[:], uint64(at))
	binary.LittleEndian.PutUint32(head[8:], uint32(len(text)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
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
	return merge(s.runs, func(_ int64, text []byte) error {
		_, err := w.Write(text)
		return err
	})
}

func (s *sorter) close() error {
	var errs []error
	for _, file := range s.runs {
		errs = append(errs, file.Close())
	}
	s.runs, s.text, s.all = nil, nil, nil
	return errors.Join(errs...)
}

// A runReader reads a sorted run. It holds the next record.
type runReader struct {
	in   *bufio.Reader
	at   int64
	text []byte
}

// next reads the next record. The error is io.EOF at the end.
func (r *runReader) next() error {
	var head [12]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return err
	}
	r.at = int64(binary.LittleEndian.Uint64(head[:]))
	length := int(binary.LittleEndian.Uint32(head[8:]))
	r.text = slices.Grow(r.text[:0], length)[:length]
	_, err := io.ReadFull(r.in, r.text)
	if errors.Is(err, io.EOF) && length > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// merge calls out for the records of all files, in order. Records of equal times are in the order
// of the files.
func merge(files []*os.File, out func(at int64, text []byte) error) error {
	var open []*runReader // those with a further record
	for _, file := range files {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		r := &runReader{in: bufio.NewReaderSize(file, 1<<16)}
		switch err := r.next(); {
		case err == nil:
			open = append(open, r)
		case !errors.Is(err, io.EOF):
			return err
		}
	}
	for len(open) > 0 {
		first := slices.MinFunc(open, func(a, b *runReader) int { return cmp.Compare(a.at, b.at) })
		if err := out(first.at, first.text); err != nil {
			return err
		}
		switch err := first.next(); {
		case errors.Is(err, io.EOF):
			open = slices.DeleteFunc(open, func(r *runReader) bool { return r == first })
		case err != nil:
			return err
		}
	}
	return nil
}
