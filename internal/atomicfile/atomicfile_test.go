package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

func TestWriteReplacesFileAtomically(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	temporary := filepath.Join(filepath.Dir(path), ".file.weir.tmp")
	// A process that was killed left its temporary file, which others could read.
	must.Succeed(t, os.WriteFile(temporary, []byte("half"), 0o644))
	// This file is that of a user.
	must.Succeed(t, os.WriteFile(path+".tmp", []byte("of a user"), 0o644))
	failure := errors.New("no content")
	for _, c := range []struct {
		text string
		err  error
		want string
	}{{"first", nil, "first"}, {"second", failure, "first"}, {"third", nil, "third"}} {
		err := Write(path, func(w io.Writer) error {
			_, err := io.WriteString(w, c.text)
			return errors.Join(err, c.err)
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.text, err, c.err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("after %s: %q, %v, want %q", c.text, got, err, c.want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v, want a file for its owner only", info.Mode(), err)
		}
		if _, err := os.Stat(temporary); err == nil {
			t.Error("the temporary file is still there")
		}
	}
	if got, err := os.ReadFile(path + ".tmp"); err != nil || string(got) != "of a user" {
		t.Errorf("the file of a user: %q, %v, want it unchanged", got, err)
	}
}
