package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

func TestFolderAtSnapshotPathIsNotLoadedOrRenamed(t *testing.T) {
	path := t.TempDir()
	_, _, err := Load(path, memstore.Options{})
	rejected, ok := errors.AsType[*RejectedError](err)
	if !ok || !strings.Contains(err.Error(), path+": not a regular file") || rejected.RenameErr == nil || rejected.KeptAs != "" {
		t.Errorf("%+v, want a folder to be rejected and left where it is", rejected)
	}
}

func TestDamagedSnapshotIsRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	must.Succeed(t, os.WriteFile(path, []byte("dear diary"), 0o600))
	_, _, err := Load(path, memstore.Options{})
	rejected, ok := errors.AsType[*RejectedError](err)
	if !ok || rejected.RenameErr != nil {
		t.Fatalf("%v, want a rejected snapshot", err)
	}
	if kept, err := os.ReadFile(rejected.KeptAs); err != nil || string(kept) != "dear diary" {
		t.Errorf("kept %q, %v", kept, err)
	}
	if _, _, err := Load(path, memstore.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want no snapshot", err)
	}
}
