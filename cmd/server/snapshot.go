package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A snapshot is the file that the counters in memory are kept in while no process runs.
type snapshot struct {
	path  string // empty: none
	every time.Duration
	store *memstore.Store
	log   *zap.Logger

	mu    sync.Mutex
	stats telemetry.SnapshotStats
}

func memoryOptions(s *settings.Serve) memstore.Options {
	return memstore.Options{MaxKeys: s.MemoryMaxKeys, MaxBytes: keyBytes(s.MemoryMaxBytes, memlimit.FromCgroup)}
}

// openMemory makes the store in memory, of its snapshot if there is one. One that cannot be used is kept aside, under
// another name, and the store is empty: a server that limits anew is better than none.
func openMemory(s *settings.Serve, log *zap.Logger) *snapshot {
	o := memoryOptions(s)
	snap := &snapshot{path: s.MemorySnapshot, every: s.MemorySnapshotInterval}
	if snap.path == "" {
		snap.store = memstore.New(o)
		return snap
	}
	snap.log = log.With(zap.String("snapshot", snap.path))
	since := time.Now()
	store, told, err := loadSnapshot(snap.path, o)
	switch {
	case err == nil:
		snap.store, snap.stats.Loaded = store, told.Keys
		snap.log.Info("counters loaded", zap.Int64("keys", told.Keys), zap.Time("saved", told.Saved),
			zap.Int64("ended meanwhile", told.Ended), zap.Int64("left out", told.LeftOut), zap.Duration("took", time.Since(since)))
		return snap
	case errors.Is(err, fs.ErrNotExist):
		snap.log.Info("no counters to load: there is no snapshot yet")
	default:
		snap.setAside(err)
	}
	snap.store = memstore.New(o)
	return snap
}

func loadSnapshot(path string, o memstore.Options) (*memstore.Store, memstore.Loaded, error) {
	// Whatever has no end, such as a pipe, would be waited for.
	if info, err := os.Stat(path); err != nil {
		return nil, memstore.Loaded{}, err
	} else if !info.Mode().IsRegular() {
		return nil, memstore.Loaded{}, errNotAFile
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, memstore.Loaded{}, err
	}
	defer func() { _ = f.Close() }()
	return memstore.Load(f, o)
}

var errNotAFile = errors.New("not a file")

// setAside keeps a snapshot that was refused from being written over.
func (s *snapshot) setAside(why error) {
	aside := s.path + ".refused"
	err := errNotAFile
	if !errors.Is(why, errNotAFile) {
		err = os.Rename(s.path, aside)
	}
	if err != nil {
		s.log.Error("the counters are not loaded, and none will be saved: MEMORY_SNAPSHOT names what cannot be used or moved; "+
			"give it another path, or remove what is there, and start again", zap.NamedError("why", why), zap.Error(err))
		s.path = ""
		return
	}
	s.log.Error("the counters are not loaded: the snapshot is refused, and all limits begin anew; it is kept aside: "+
		"if another version of Weir wrote it, stop, move it back and start that one, else remove it",
		zap.Error(why), zap.String("kept as", aside))
}

// await saves every so often, until ctx ends.
func (s *snapshot) await(ctx context.Context, ready func()) {
	ready()
	if s.path == "" {
		return
	}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.save()
		}
	}
}

// stopped saves what the last request has left.
func (s *snapshot) stopped() {
	if s.path != "" {
		s.save()
	}
}

func (s *snapshot) save() {
	since := time.Now()
	keys, err := s.write()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Failures++
		s.log.Error("the counters are not saved: a restart would forget them, but for the last snapshot, if there is one; "+
			"see that the folder of MEMORY_SNAPSHOT is there, writable and not full", zap.Error(err))
		return
	}
	s.stats.SavedAt, s.stats.Saved = time.Now(), keys
	s.log.Debug("counters saved", zap.Int64("keys", keys), zap.Duration("took", time.Since(since)))
}

// write puts a whole snapshot in the place of the last one, or none: a name on disk never has half of one.
func (s *snapshot) write() (keys int64, err error) {
	whole := s.path + ".tmp"
	// What a process that was killed has left goes; the new file is this one's alone, since keys hold what users sent.
	if err := os.Remove(whole); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	f, err := os.OpenFile(whole, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(whole)
		}
	}()
	if keys, err = s.fill(f); err != nil {
		_ = f.Close()
		return 0, err
	}
	if err = f.Close(); err != nil {
		return 0, err
	}
	if err = os.Rename(whole, s.path); err != nil {
		return 0, err
	}
	return keys, syncFolder(filepath.Dir(s.path))
}

func (s *snapshot) fill(f *os.File) (int64, error) {
	w := bufio.NewWriterSize(f, 256<<10)
	keys, err := s.store.Save(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return keys, err
}

// syncFolder makes a rename last.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("folder %s: %w", path, err)
	}
	return nil
}

func (s *snapshot) statsNow() telemetry.SnapshotStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
