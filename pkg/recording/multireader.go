package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Unreadable is the reason for the line at which a file becomes unreadable, for example because a
// compressed file was cut. Only a [MultiReader] counts it; a [Reader] returns the error instead.
const Unreadable SkipReason = "unreadable"

// A FileSkipCount counts the lines that were skipped for one reason in one file.
type FileSkipCount struct {
	File string `json:"file"`
	SkipCount
	Error string `json:"error,omitempty"` // the error of the file, for Unreadable
}

// A MultiReader reads several recordings as one, in the order of the times. Lines of equal times
// are in the order of the files. A regular file is closed until its first line is due, so that many
// rotated files need little memory. A MultiReader is not safe for concurrent use.
type MultiReader struct {
	sources []*source
	next    []*source // the sources that have not ended, sorted by byNext
}

// A source is one recording of a MultiReader: a file, or standard input. reader is nil until the
// first line is due, and after the end.
type source struct {
	name    string
	number  int         // among the sources
	info    os.FileInfo // nil for standard input
	stdin   io.Reader
	opened  io.Closer       // nil for standard input
	bytes   *countingReader // nil until the first line is due
	reader  *Reader
	line    Line // the next line
	skipped []SkipCount
	lines   int64
	notes   []RecorderNote // the notes so far
	err     error          // the error that ended the file
}

// countingReader counts the bytes read.
type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

var recordingName = regexp.MustCompile(`^weir-\d{8}T\d{6}\.\d{6}Z-.*\.ndjson(\.zst)?$`)

// IsRecordingName reports whether a recorder names its files in this way. The names sort by the
// times at which the files begin.
func IsRecordingName(name string) bool { return recordingName.MatchString(name) }

// Open opens recordings. The path - is stdin, and a folder stands for the recordings in it. The
// error names the first file that cannot be opened or read or that is given twice, such as by a
// link, or a folder without recordings.
func Open(paths []string, stdin io.Reader) (*MultiReader, error) {
	paths, err := expandFolders(paths)
	if err != nil {
		return nil, err
	}
	m := &MultiReader{}
	named := map[string]bool{}
	for i, path := range paths {
		if named[path] {
			return nil, errors.Join(fmt.Errorf("recording %s is given twice: remove one", path), m.Close())
		}
		named[path] = true
		s := &source{name: path, number: i}
		if path == "-" {
			s.name, s.stdin = "standard input", stdin
		}
		m.sources = append(m.sources, s)
		if err := m.peek(s, path); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	slices.SortFunc(m.next, byNext)
	return m, nil
}

// expandFolders replaces each folder by the recordings in it, in the order of their times.
func expandFolders(paths []string) (all []string, err error) {
	for _, path := range paths {
		if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
			if clean := filepath.Clean(path); clean != "-" { // the file ./- is not standard input
				path = clean // as the paths in folders, so that a file is read once
			}
			all = append(all, path)
			continue
		}
		entries, err := os.ReadDir(path) // sorted by name
		if err != nil {
			return nil, err
		}
		n := len(all)
		for _, e := range entries {
			if e.Type().IsRegular() && IsRecordingName(e.Name()) {
				all = append(all, filepath.Join(path, e.Name()))
			}
		}
		if len(all) == n {
			return nil, fmt.Errorf("the folder %s has no file that RECORD_PATH wrote (weir-TIME-REPLICA.ndjson.zst or .ndjson): name another folder, "+
				"or the files in it", path)
		}
	}
	return all, nil
}

// peek reads the first line of a file. It closes a regular file until that line is due.
func (m *MultiReader) peek(s *source, path string) error {
	if s.stdin == nil {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		for _, other := range m.sources {
			if other.info != nil && os.SameFile(info, other.info) {
				return fmt.Errorf("recordings %s and %s are one file: remove one", other.name, path)
			}
		}
		s.info = info
	}
	if err := s.open(); err != nil {
		return err
	}
	more := s.advance()
	s.notes = s.reader.Notes()
	if !more {
		return s.end()
	}
	m.next = append(m.next, s)
	if !s.isRegular() {
		return nil
	}
	s.bytes = nil
	return s.close()
}

// isRegular reports whether s is a regular file, which has a size and can be opened again.
func (s *source) isRegular() bool { return s.info != nil && s.info.Mode().IsRegular() }

// open opens the file at its beginning.
func (s *source) open() error {
	in := s.stdin
	if in == nil {
		opened, err := os.Open(s.name)
		if err != nil {
			return err
		}
		in, s.opened = opened, opened
	}
	s.bytes = &countingReader{Reader: in}
	var err error
	s.reader, err = NewReader(s.bytes, ReaderOptions{})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.name, err), s.close())
	}
	return nil
}

// advance reads the next line. It returns false at the end of the file, or when the file becomes
// unreadable.
func (s *source) advance() bool {
	err := s.reader.Next(&s.line)
	if err == nil {
		return true
	}
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
	return false
}

// close closes the file, which may be opened again.
func (s *source) close() error {
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
	if s.opened == nil {
		return nil
	}
	err := s.opened.Close()
	s.opened = nil
	return err
}

// end closes a file and keeps its counts.
func (s *source) end() error {
	s.skipped, s.lines, s.notes = s.reader.Skipped(), s.reader.Lines(), s.reader.Notes()
	return s.close()
}

// Next writes the next line to into. At the end of all files it returns [io.EOF]. It counts a file
// that becomes unreadable as [Unreadable], and continues with the others. It returns any other
// error only for a file that could not be opened again.
func (m *MultiReader) Next(into *Line) error {
	if len(m.next) == 0 {
		return io.EOF
	}
	first := m.next[0]
	if first.reader == nil {
		if err := first.reopen(); err != nil {
			return err
		}
	}
	*into = first.line
	others := m.next[1:]
	if !first.advance() {
		m.next = others
		return first.end()
	}
	i, _ := slices.BinarySearchFunc(others, first, byNext)
	copy(m.next, others[:i])
	m.next[i] = first
	return nil
}

// byNext compares files by the times of their next lines, and then by their numbers.
func byNext(a, b *source) int {
	return cmp.Or(a.line.At.Compare(b.line.At), cmp.Compare(a.number, b.number))
}

// reopen opens a file whose first line is due, and skips that line.
func (s *source) reopen() error {
	was := s.line.At
	if err := s.open(); err != nil {
		return err
	}
	if !s.advance() || !s.line.At.Equal(was) {
		return fmt.Errorf("recording %s has changed while it was read: read a copy of it", s.name)
	}
	return nil
}

// Lines returns the number of lines read so far, including skipped and empty ones.
func (m *MultiReader) Lines() (n int64) {
	for _, s := range m.sources {
		n += s.lines
		if s.reader != nil {
			n += s.reader.Lines()
		}
	}
	return n
}

// Skipped returns the lines that were skipped so far, by file and reason.
func (m *MultiReader) Skipped() []FileSkipCount {
	var all []FileSkipCount
	for _, s := range m.sources {
		skipped := s.skipped
		if s.reader != nil {
			skipped = s.reader.Skipped()
		}
		for _, count := range skipped {
			all = append(all, FileSkipCount{File: s.name, SkipCount: count})
		}
		if s.err != nil {
			all = append(all, FileSkipCount{File: s.name, SkipCount: SkipCount{Reason: Unreadable, Lines: 1, First: s.lines}, Error: s.err.Error()})
		}
	}
	return all
}

// Notes returns the notes of the recorders in the files, each once. It is complete at the end of
// the files.
func (m *MultiReader) Notes() []RecorderNote {
	var all []RecorderNote
	for _, s := range m.sources {
		for _, note := range s.notes {
			if !slices.Contains(all, note) {
				all = append(all, note)
			}
		}
	}
	return all
}

// Bytes returns how many bytes have been read, and the total. The total is 0 if a recording is not
// a regular file.
func (m *MultiReader) Bytes() (read, total int64) {
	sized := true
	for _, s := range m.sources {
		if s.bytes != nil {
			read += s.bytes.n
		}
		if s.isRegular() {
			total += s.info.Size()
		} else {
			sized = false
		}
	}
	if !sized {
		return read, 0
	}
	return read, total
}

// Close closes the files. It does not close standard input.
func (m *MultiReader) Close() error {
	var errs []error
	for _, s := range m.sources {
		errs = append(errs, s.close())
	}
	m.next = nil
	return errors.Join(errs...)
}
