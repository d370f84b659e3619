package recorder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/pkg/recording"
)

// defaultRetryDelay is how long the writer waits after an error before it tries again.
const defaultRetryDelay = time.Second

// notInName matches the characters of a replica's name that are replaced by "-" in the name of a
// file.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// A file is an open recording. It is an *os.File.
type file interface {
	io.WriteCloser
	Stat() (fs.FileInfo, error)
}

func create(path string) (file, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// A rotatingFile writes text to the current file of a recording, and begins the next one.
type rotatingFile struct {
	options *Options
	secret  string

	path    string
	file    file // nil: none is open
	encoder *zstd.Encoder
	written bool  // a write to the file succeeded
	noted   int64 // how many of the dropped lines the notes in the recording count
	retryAt time.Time
	err     error // the last attempt's error
}

// write writes whole lines, the last of which has the time at. It first notes how many lines have
// been dropped. After an error all of text counts as unwritten, and write tries again in a new file
// after the retry delay.
func (f *rotatingFile) write(text []byte, at time.Time, dropped int64) error {
	if time.Now().Before(f.retryAt) {
		return f.err
	}
	f.err = f.tryWrite(text, at, dropped)
	if f.err == nil {
		return nil
	}
	f.abandon()
	f.retryAt = time.Now().Add(f.options.retryDelay)
	return f.err
}

func (f *rotatingFile) tryWrite(text []byte, at time.Time, dropped int64) error {
	if f.file != nil && f.isComplete(int64(len(text))) {
		if err := f.close(); err != nil {
			return err
		}
	}
	if f.file == nil {
		if err := f.begin(); err != nil {
			return err
		}
	}
	if at.IsZero() {
		at = time.Now()
	}
	var notes []byte
	if !f.written {
		notes = recording.AppendNote(nil, at, recording.RecorderNote{Sample: f.options.Sample, Secret: f.secret})
	}
	if dropped > f.noted {
		notes = recording.AppendDropped(notes, at, dropped-f.noted)
	}
	if len(notes)+len(text) == 0 {
		return nil
	}
	if err := f.appendFrame(notes, text); err != nil {
		return fmt.Errorf("write the recording %s: %w", f.path, err)
	}
	f.noted, f.written = dropped, true
	return nil
}

// appendFrame writes texts as a separate zstd frame and flushes them, so that the file is complete
// after each call.
func (f *rotatingFile) appendFrame(texts ...[]byte) error {
	var to io.Writer = f.file
	if f.encoder != nil {
		to = f.encoder
	}
	for _, text := range texts {
		if _, err := to.Write(text); err != nil {
			return err
		}
	}
	if f.encoder == nil {
		return nil
	}
	err := f.encoder.Close()
	f.encoder.Reset(f.file)
	return err
}

// isComplete reports whether the current file has no room for a number of further bytes, or its
// path no longer leads to it.
func (f *rotatingFile) isComplete(further int64) bool {
	open, err := f.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(f.path)
	full := open.Size() > 0 && open.Size()+further > f.options.FileBytes
	return full || err != nil || !os.SameFile(open, named)
}

// begin makes room for the next file, and opens it.
func (f *rotatingFile) begin() error {
	if err := os.MkdirAll(f.options.Path, 0o700); err != nil {
		return fmt.Errorf("make the folder of recordings: %w", err)
	}
	if err := f.makeRoom(); err != nil {
		return err
	}
	name := "weir-" + time.Now().UTC().Format("20060102T150405.000000Z") + "-" + notInName.ReplaceAllString(f.options.Replica, "-") + ".ndjson"
	if !f.options.Plain {
		name += ".zst"
	}
	f.path = filepath.Join(f.options.Path, name)
	opened, err := f.options.create(f.path)
	if err != nil {
		return fmt.Errorf("begin a recording: %w", err)
	}
	f.file, f.written = opened, false
	if f.options.Plain {
		return nil
	}
	if f.encoder != nil {
		f.encoder.Reset(f.file)
		return nil
	}
	// With a concurrency of 1 the encoder has no goroutines.
	f.encoder, err = zstd.NewWriter(f.file, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20))
	return err
}

// makeRoom removes the oldest recordings, so that another file fits under MaxBytes.
func (f *rotatingFile) makeRoom() error {
	all, err := os.ReadDir(f.options.Path) // sorted by name, so by age
	if err != nil {
		return fmt.Errorf("list the recordings: %w", err)
	}
	type recordingFile struct {
		path string
		size int64
	}
	var found []recordingFile
	total := f.options.FileBytes
	for _, entry := range all {
		if !recording.IsRecordingName(entry.Name()) {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // removed meanwhile
		}
		found = append(found, recordingFile{filepath.Join(f.options.Path, entry.Name()), info.Size()})
		total += info.Size()
	}
	for _, r := range found {
		if total <= f.options.MaxBytes {
			break
		}
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the oldest recording: %w", err)
		}
		total -= r.size
	}
	return nil
}

// close completes the current file, if one is open.
func (f *rotatingFile) close() error {
	if f.file == nil {
		return nil
	}
	var err error
	if f.encoder != nil {
		err = f.encoder.Close()
	}
	err = errors.Join(err, f.file.Close())
	f.file = nil
	if err != nil {
		return fmt.Errorf("complete the recording %s: %w", f.path, err)
	}
	return nil
}

// abandon closes the current file after an error. The file stays readable up to the last successful
// write. Without a successful write, abandon removes the file.
func (f *rotatingFile) abandon() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	f.file = nil
	if !f.written {
		_ = os.Remove(f.path)
	}
}
