package snapshot

import (
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

func TestFolderAtSnapshotPathIsNotLoadedOrRenamed(t *testing.T) {
	path := t.TempDir()
	if _, _, err := Load(path, memstore.Options{}); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("Load: %v", err)
	}
	if _, err := Quarantine(path); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("Quarantine: %v", err)
	}
}
