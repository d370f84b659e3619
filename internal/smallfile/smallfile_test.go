package smallfile

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

func TestReadReturnsTheContent(t *testing.T) {
	for _, text := range []string{"", "secret\n", strings.Repeat("a", 1<<20)} {
		path := must.Write(t, filepath.Join(t.TempDir(), "file"), text)
		if data, err := Read(path); err != nil || string(data) != text {
			t.Errorf("%d bytes, %v, want %d", len(data), err, len(text))
		}
	}
}

// Editors on Windows begin a file with this mark, which belongs to no token, password or PEM block.
func TestReadSkipsByteOrderMark(t *testing.T) {
	path := must.Write(t, filepath.Join(t.TempDir(), "file"), "\ufeff\ufeffsecret\n")
	if data, err := Read(path); err != nil || string(data) != "\ufeffsecret\n" {
		t.Errorf("%q, %v, want the content without one mark", data, err)
	}
}

// Opening a pipe waits for its writer, possibly forever.
func TestReadRejectsLargeAndIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must.Succeed(t, syscall.Mkfifo(pipe, 0o600))
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "none: no such file",
		dir:                        dir + " is not a regular file",
		pipe:                       pipe + " is not a regular file",
		must.Write(t, filepath.Join(dir, "large"), strings.Repeat("s3cret", 1<<20)): "large is too large: want at most 1048576 bytes",
	} {
		if data, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || data != nil {
			t.Errorf("%s: %d bytes, %v, want %q", path, len(data), err, want)
		}
	}
}
