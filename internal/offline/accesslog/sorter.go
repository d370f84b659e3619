package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
)

// A sorter sorts lines of a recording by their times. Lines of equal times stay in order. Beyond
// max bytes it writes sorted runs to temporary files, and merges them at the end.
type sorter struct {
	max   int
	lines [][]byte
	size  int // bytes of lines
	runs  []*os.File
}

// maxRuns bounds the files that are open at once. More runs are merged into one.
const maxRuns = 64

// byTime compares lines by their times. Each line begins with its time in UTC, see
// [recording.AppendLine], and all times have the same width.
func byTime(a, b []byte) int {
	const width = len(`{"t":"2006-01-02T15:04:05.000000Z`)
	return bytes.Compare(a[:width], b[:width])
}

// add adds a copy of a line with its end.
func (s *sorter) add(line []byte) error {
	const overhead = 24
	if s.size+len(line) > s.max && len(s.lines) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.lines = append(s.lines, bytes.Clone(line))
	s.size += len(line) + overhead
	return nil
}

// writeLines sorts the lines in memory and writes them.
func (s *sorter) writeLines(w io.Writer) error {
	slices.SortStableFunc(s.lines, byTime)
	for _, line := range s.lines {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// spill writes the lines in memory to a run.
func (s *sorter) spill() error {
	err := s.newRun(s.writeLines)
	clear(s.lines)
	s.lines, s.size = s.lines[:0], 0
	if err != nil || len(s.runs) < maxRuns {
		return err
	}
	old := s.runs
	s.runs = nil
	err = s.newRun(func(w io.Writer) error { return merge(w, old) })
	for _, file := range old {
		err = errors.Join(err, file.Close())
	}
	return err
}

// newRun writes a temporary file, which has no name, and adds it to the runs.
func (s *sorter) newRun(write func(io.Writer) error) error {
	file, err := os.CreateTemp("", "weir-convert-*")
	if err != nil {
		return err
	}
	_ = os.Remove(file.Name()) // the file lives until it is closed
	s.runs = append(s.runs, file)
	w := bufio.NewWriterSize(file, 1<<16)
	return cmp.Or(write(w), w.Flush())
}

// write writes all lines in order.
func (s *sorter) write(w io.Writer) error {
	if len(s.runs) == 0 {
		return s.writeLines(w)
	}
	if err := s.spill(); err != nil {
		return err
	}
	return merge(w, s.runs)
}

func (s *sorter) close() error {
	var errs []error
	for _, file := range s.runs {
		errs = append(errs, file.Close())
	}
	s.runs, s.lines = nil, nil
	return errors.Join(errs...)
}

// A runReader reads a sorted run. It holds the next line.
type runReader struct {
	in   *bufio.Reader
	line []byte
}

// next reads the next line. The error is io.EOF at the end.
func (r *runReader) next() (err error) {
	r.line, err = r.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) && len(r.line) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// merge writes the lines of sorted runs in order. Lines of equal times are in the order of the
// runs.
func merge(w io.Writer, runs []*os.File) error {
	var open []*runReader // those with a further line
	for _, file := range runs {
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
		first := slices.MinFunc(open, func(a, b *runReader) int { return byTime(a.line, b.line) })
		if _, err := w.Write(first.line); err != nil {
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
