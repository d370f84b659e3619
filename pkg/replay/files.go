package replay

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
// compressed file was cut. Only [Files] counts it; a [Reader] returns the error instead.
const Unreadable SkipReason = "unreadable"

// A FileSkipCount counts the lines that were skipped for one reason in one file.
type FileSkipCount struct {
	File string `json:"file"`
	SkipCount
	Error string `json:"error,omitempty"` // the error of the file, for Unreadable
}

// Files reads several recordings as one, in the order of the times. Lines of equal times are in the
// order of the files. A regular file is closed until its first line is due, so that many rotated
// files need little memory. A Files is not safe for concurrent use.
type Files struct {
	all   []*file
	next  []*file // the files that have not ended, sorted by byNext
	read  int64   // bytes of files that are closed
	total int64   // bytes of regular files
	sized bool    // all files are regular
}

// A file is one of Files. reader is nil until the first line is due, and after the end.
type file struct {
	name    string
	number  int // among the files
	stdin   io.Reader
	opened  io.Closer // nil for standard input
	bytes   *countingReader
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
// error names the first file that cannot be opened or read or that is given twice, or a folder
// without recordings.
func Open(paths []string, stdin io.Reader) (*Files, error) {
	paths, err := expandFolders(paths)
	if err != nil {
		return nil, err
	}
	f := &Files{sized: true}
	named := map[string]bool{}
	for i, path := range paths {
		if named[path] {
			return nil, errors.Join(fmt.Errorf("recording %s is given twice: remove one", path), f.Close())
		}
		named[path] = true
		rec := &file{name: path, number: i}
		if path == "-" {
			rec.name, rec.stdin = "standard input", stdin
		}
		f.all = append(f.all, rec)
		if err := f.peek(rec, path); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	slices.SortFunc(f.next, byNext)
	return f, nil
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
func (f *Files) peek(rec *file, path string) error {
	regular := false
	if rec.stdin == nil {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if regular = info.Mode().IsRegular(); regular {
			f.total += info.Size()
		}
	}
	f.sized = f.sized && regular
	if err := rec.open(); err != nil {
		return err
	}
	more := rec.advance()
	rec.notes = rec.reader.Notes()
	if !more {
		return f.end(rec)
	}
	f.next = append(f.next, rec)
	if !regular {
		return nil
	}
	return rec.close()
}

// open opens the file at its beginning.
func (f *file) open() error {
	in := f.stdin
	if in == nil {
		opened, err := os.Open(f.name)
		if err != nil {
			return err
		}
		in, f.opened = opened, opened
	}
	f.bytes = &countingReader{Reader: in}
	var err error
	f.reader, err = NewReader(f.bytes, ReaderOptions{})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", f.name, err), f.close())
	}
	return nil
}

// advance reads the next line. It returns false at the end of the file, or when the file becomes
// unreadable.
func (f *file) advance() bool {
	err := f.reader.Next(&f.line)
	if err == nil {
		return true
	}
	if !errors.Is(err, io.EOF) {
		f.err = err
	}
	return false
}

// close closes the file, which may be opened again.
func (f *file) close() error {
	if f.reader != nil {
		f.reader.Close()
		f.reader = nil
	}
	if f.opened == nil {
		return nil
	}
	err := f.opened.Close()
	f.opened = nil
	return err
}

// end closes a file and keeps its counts.
func (f *Files) end(rec *file) error {
	rec.skipped, rec.lines, rec.notes = rec.reader.Skipped(), rec.reader.Lines(), rec.reader.Notes()
	f.read += rec.bytes.n
	rec.bytes.n = 0
	return rec.close()
}

// Next writes the next line to into. At the end of all files it returns [io.EOF]. It counts a file
// that becomes unreadable as [Unreadable], and continues with the others. It returns any other
// error only for a file that could not be opened again.
func (f *Files) Next(into *Line) error {
	if len(f.next) == 0 {
		return io.EOF
	}
	first := f.next[0]
	if first.reader == nil {
		if err := first.reopen(); err != nil {
			return err
		}
	}
	*into = first.line
	others := f.next[1:]
	if !first.advance() {
		f.next = others
		return f.end(first)
	}
	i, _ := slices.BinarySearchFunc(others, first, byNext)
	copy(f.next, others[:i])
	f.next[i] = first
	return nil
}

// byNext compares files by the times of their next lines, and then by their numbers.
func byNext(a, b *file) int {
	return cmp.Or(a.line.At.Compare(b.line.At), cmp.Compare(a.number, b.number))
}

// reopen opens a file whose first line is due, and skips that line.
func (f *file) reopen() error {
	was := f.line.At
	if err := f.open(); err != nil {
		return err
	}
	if !f.advance() || !f.line.At.Equal(was) {
		return fmt.Errorf("recording %s has changed while it was read: read a copy of it", f.name)
	}
	return nil
}

// Lines returns the number of lines read so far, including skipped and empty ones.
func (f *Files) Lines() (n int64) {
	for _, rec := range f.all {
		n += rec.lines
		if rec.reader != nil {
			n += rec.reader.Lines()
		}
	}
	return n
}

// Skipped returns the lines that were skipped so far, by file and reason.
func (f *Files) Skipped() []FileSkipCount {
	var all []FileSkipCount
	for _, rec := range f.all {
		skipped := rec.skipped
		if rec.reader != nil {
			skipped = rec.reader.Skipped()
		}
		for _, s := range skipped {
			all = append(all, FileSkipCount{File: rec.name, SkipCount: s})
		}
		if rec.err != nil {
			all = append(all, FileSkipCount{File: rec.name, SkipCount: SkipCount{Reason: Unreadable, Lines: 1, First: rec.lines}, Error: rec.err.Error()})
		}
	}
	return all
}

// Notes returns the notes of the recorders in the files, each once. It is complete at the end of
// the files.
func (f *Files) Notes() []RecorderNote {
	var all []RecorderNote
	for _, rec := range f.all {
		for _, note := range rec.notes {
			if !slices.Contains(all, note) {
				all = append(all, note)
			}
		}
	}
	return all
}

// Bytes returns how many bytes have been read, and the total. The total is 0 if a recording is not
// a regular file.
func (f *Files) Bytes() (read, total int64) {
	read = f.read
	for _, rec := range f.all {
		if rec.reader != nil {
			read += rec.bytes.n
		}
	}
	if f.sized {
		total = f.total
	}
	return read, total
}

// Close closes the files. It does not close standard input.
func (f *Files) Close() error {
	var errs []error
	for _, rec := range f.all {
		errs = append(errs, rec.close())
	}
	f.next = nil
	return errors.Join(errs...)
}
