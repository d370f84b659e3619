package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// snapshotting starts a server with MEMORY_SNAPSHOT in dir.
func snapshotting(t *testing.T, dir string, settings ...string) *server {
	t.Helper()
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, rules)
	s := startServer(t, append([]string{"CONFIG_PATH=" + path, "MEMORY_SNAPSHOT=" + filepath.Join(dir, "snapshot")}, settings...)...)
	s.awaitHealthy()
	return s
}

func TestSnapshotSurvivesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := snapshotting(t, dir)
	s.remaining("alice")
	s.remaining("alice")
	s.remaining("bob")
	s.stop()
	info, err := os.Stat(filepath.Join(dir, "snapshot"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want a file of its owner alone", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".snapshot.weir.tmp")); err == nil {
		t.Error("the file that was written is still there")
	}

	s = snapshotting(t, dir)
	if alice, bob, carol := s.remaining("alice"), s.remaining("bob"), s.remaining("carol"); alice != 0 || bob != 1 || carol != 2 {
		t.Errorf("after a restart alice has %d left, bob %d, carol %d; want 0, 1, 2", alice, bob, carol)
	}
	if got := s.metric("weir_memory_snapshot_loaded_keys"); got != "2" {
		t.Errorf("%s keys loaded, want 2", got)
	}
}

func TestKilledServerLosesOnlyUnsavedCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := snapshotting(t, dir, "MEMORY_SNAPSHOT_INTERVAL=10ms")
	s.remaining("alice")
	s.remaining("alice")
	// The first save after these requests may have started before them.
	const savedAt = "weir_memory_snapshot_timestamp_seconds"
	for range 2 {
		before := s.metric(savedAt)
		must.Until(s.t, "a snapshot to be saved", func() bool { return s.metric(savedAt) != before })
	}
	must.Succeed(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()

	s = snapshotting(t, dir, "MEMORY_SNAPSHOT_INTERVAL=1h")
	if got := s.remaining("alice"); got != 0 {
		t.Errorf("alice has %d left, want 0", got)
	}
	s.remaining("bob")
	s.remaining("bob")
	must.Succeed(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	s = snapshotting(t, dir)
	if alice, bob := s.remaining("alice"), s.remaining("bob"); alice != 0 || bob != 2 {
		t.Errorf("alice has %d left, bob %d; want 0, for it was saved, and 2, for it was not", alice, bob)
	}
}

func TestRejectedSnapshotIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot")
	s := snapshotting(t, dir)
	s.remaining("alice")
	s.remaining("alice")
	s.stop()
	good := must.Read(t, path)
	newer := bytes.Clone(good)
	newer[8]++
	for why, text := range map[string][]byte{
		"the snapshot is damaged": good[:len(good)-1],
		"not a snapshot":          []byte("dear diary"),
		"another version":         newer,
	} {
		t.Run(why, func(t *testing.T) {
			write(t, path, string(text))
			s := snapshotting(t, dir)
			line, _ := s.log.await(t, 0, why)
			if !strings.Contains(line, "snapshot not loaded, counters start at zero") || !strings.Contains(line, path+".refused") {
				t.Errorf("said %s", line)
			}
			if got := s.remaining("alice"); got != 2 {
				t.Errorf("alice has %d left, want 2", got)
			}
			s.stop()
			if kept, err := os.ReadFile(path + ".refused"); err != nil || !bytes.Equal(kept, text) {
				t.Errorf("kept %q, %v", kept, err)
			}
			s = snapshotting(t, dir)
			if got := s.remaining("alice"); got != 1 {
				t.Errorf("after one more restart alice has %d left, want 1", got)
			}
			s.stop()
		})
	}
}

func TestFolderAtSnapshotPathIsNotRenamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	within := filepath.Join(dir, "snapshot", "within")
	must.Succeed(t, os.MkdirAll(within, 0o700))
	s := snapshotting(t, dir, "MEMORY_SNAPSHOT_INTERVAL=10ms")
	s.log.await(t, 0, "will not be saved")
	s.remaining("alice")
	const failures = "weir_memory_snapshot_failures_total"
	must.Until(s.t, failures+" to rise", func() bool { return s.metric(failures) != "0" })
	s.stop()
	if _, err := os.Stat(within); err != nil {
		t.Error(err)
	}
}

func TestServerRunsIfSnapshotsFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := snapshotting(t, dir, "MEMORY_SNAPSHOT="+filepath.Join(dir, "none", "snapshot"), "MEMORY_SNAPSHOT_INTERVAL=10ms")
	s.log.await(t, 0, "counters not saved")
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("alice has %d left, want 2", got)
	}
	if s.metric("weir_memory_snapshot_failures_total") == "0" || s.metric("weir_memory_snapshot_timestamp_seconds") != "0" {
		t.Error("/metrics does not report the failed save")
	}
	s.stop()
}

func TestRedisNeedsNoSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := snapshotting(t, dir, "REDIS_URL="+redistest.Start(t).Addr)
	s.log.await(t, 0, `"setting":"MEMORY_SNAPSHOT"`)
	s.stop()
	if _, err := os.Stat(filepath.Join(dir, "snapshot")); err == nil {
		t.Error("a snapshot was saved")
	}
}
