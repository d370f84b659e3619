package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// open opens a snapshot, and returns its last log line.
func open(path string) (*File, observer.LoggedEntry) {
	core, logged := observer.New(zap.InfoLevel)
	_, f := Open(path, memstore.Options{}, zap.New(core))
	all := logged.All()
	return f, all[len(all)-1]
}

func TestFolderAtSnapshotPathIsNotLoadedOrRenamed(t *testing.T) {
	path := t.TempDir()
	f, line := open(path)
	if reason, _ := line.ContextMap()["error"].(string); !strings.Contains(reason, path+": not a regular file") {
		t.Errorf("logged %v, want the reason", line)
	}
	f.Save()
	if s := f.Stats(); s != (Stats{Failures: 1}) {
		t.Errorf("%+v, want one failure", s)
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Errorf("%v, want the folder to be left where it is", err)
	}
}

func TestSavesAreCounted(t *testing.T) {
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour})
	path := filepath.Join(t.TempDir(), "folder", "snapshot")
	store, f := Open(path, memstore.Options{}, zap.NewNop())
	must.Succeed(t, store.Take(t.Context(), limiters.Singles(limiters.Op{Key: "k", Limit: limit, Hits: 1}), make([]limiters.Verdict, 1)))
	f.Save() // the folder is missing
	if s := f.Stats(); s != (Stats{Failures: 1}) {
		t.Errorf("%+v, want one failure", s)
	}
	must.Succeed(t, os.Mkdir(filepath.Dir(path), 0o700))
	f.Save()
	if s := f.Stats(); s.SavedAt.IsZero() || s.Saved != 1 || s.Failures != 1 {
		t.Errorf("%+v, want a save of one key after one failure", s)
	}
	_, again := Open(path, memstore.Options{}, zap.NewNop())
	if s := again.Stats(); s != (Stats{Loaded: 1}) {
		t.Errorf("after a restart: %+v, want one loaded key", s)
	}
	if again.Save(); again.Stats().Saved != 1 {
		t.Errorf("saved after a restart: %+v, want one key", again.Stats())
	}
}

// A save would overwrite a snapshot that another version of Weir can read.
func TestSnapshotThatCannotBeRenamedIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	must.Write(t, path, "dear diary")
	must.Write(t, filepath.Join(path+".refused", "within"), "a folder is not replaced")
	f, line := open(path)
	if line.Message != "snapshot not loaded, counters start at zero and will not be saved" {
		t.Errorf("logged %v", line)
	}
	f.Save()
	if s, kept := f.Stats(), must.Read(t, path); s != (Stats{Failures: 1}) || string(kept) != "dear diary" {
		t.Errorf("%+v and %q, want one failure and the old file", s, kept)
	}
}

func TestDamagedSnapshotIsRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	must.Write(t, path, "dear diary")
	f, line := open(path)
	keptAs, _ := line.ContextMap()["kept_as"].(string)
	if kept, err := os.ReadFile(keptAs); f == nil || err != nil || string(kept) != "dear diary" {
		t.Errorf("got file %v, kept %q at %q, %v", f, kept, keptAs, err)
	}
	if _, line := open(path); line.Message != "no snapshot yet, counters start at zero" {
		t.Errorf("logged %v, want no snapshot", line)
	}
	f.Save()
	if _, line := open(path); line.Message != "counters loaded" || line.ContextMap()["snapshot"] != path {
		t.Errorf("logged %v, want the counters saved at %s", line, path)
	}
}
