package snapshot

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A saver writes a text, and then fails if err is set.
type saver struct {
	text string
	err  error
}

func (s saver) Save(w io.Writer) (int64, error) {
	_, err := io.WriteString(w, s.text)
	return 1, errors.Join(err, s.err)
}

func TestSnapshotSaveReplacesFileAtomically(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	// A process that was killed left its temporary file, which others could read.
	if err := os.WriteFile(path+".tmp", []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no keys")
	for _, c := range []struct {
		from saver
		want string
	}{{saver{"first", nil}, "first"}, {saver{"second", failure}, "first"}, {saver{"third", nil}, "third"}} {
		if _, err := Save(path, c.from); !errors.Is(err, c.from.err) {
			t.Errorf("%s: %v, want %v", c.from.text, err, c.from.err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("after %s: %q, %v, want %q", c.from.text, got, err, c.want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v, want a file for its owner only", info.Mode(), err)
		}
		if _, err := os.Stat(path + ".tmp"); err == nil {
			t.Error("the temporary file is still there")
		}
	}
}

func TestFolderAtSnapshotPathIsNotLoadedOrRenamed(t *testing.T) {
	path := t.TempDir()
	if _, _, err := Load(path, memstore.Options{}); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("Load: %v", err)
	}
	if _, err := SetAside(path); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("SetAside: %v", err)
	}
}
