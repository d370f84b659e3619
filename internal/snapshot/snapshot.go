// Package snapshot keeps the counters of a store in memory in a file, for the next process. It only
// logs and counts its errors: a server without a snapshot still decides requests.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/atomicfile"
	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// refusedRemedy is the remedy for a file at the path that is no snapshot and cannot be renamed.
const refusedRemedy = "set MEMORY_SNAPSHOT to another path, or remove the file or folder at this path, and restart"

// A File is the snapshot of a store. It is safe for concurrent use.
type File struct {
	path    string
	store   *memstore.Store
	log     *zap.Logger
	refused error // why no save may replace what is at path; nil: a save may

	saving sync.Mutex // held while the file is written

	mu    sync.Mutex // guards stats
	stats Stats
}

// Stats counts the keys and the failures of a [File].
type Stats struct {
	SavedAt       time.Time // the time of the last save; zero: none yet
	Saved, Loaded int64     // keys: in the last save, and at start
	Failures      int64     // saves that failed
}

// Open returns a store with the counters in the file path, and the File that saves them again. If
// the file cannot be loaded, Open renames it, and the store is empty. If the file cannot be renamed
// either, each save fails, because it would overwrite the file.
func Open(path string, o memstore.Options, log *zap.Logger) (*memstore.Store, *File) {
	log = log.With(zap.String("snapshot", path))
	since := time.Now()
	store, loaded, err := load(path, o)
	if err == nil {
		log.Info("counters loaded", zap.Int64("keys", loaded.Keys), zap.Time("saved_at", loaded.SavedAt),
			zap.Int64("expired", loaded.Expired), zap.Int64("left_out", loaded.NotLoaded), zap.Duration("took_seconds", time.Since(since)))
		return store, &File{path: path, store: store, log: log, stats: Stats{Loaded: loaded.Keys}}
	}
	store = memstore.New(o)
	if errors.Is(err, fs.ErrNotExist) {
		log.Info("no snapshot yet, counters start at zero")
		return store, &File{path: path, store: store, log: log}
	}
	keptAs, renameErr := quarantine(path)
	if renameErr != nil {
		log.Error("snapshot not loaded, counters start at zero and will not be saved", zap.Error(err),
			zap.NamedError("rename_error", renameErr),
			zap.String("remedy", refusedRemedy))
		return store, &File{path: path, store: store, log: log, refused: renameErr}
	}
	log.Error("snapshot not loaded, counters start at zero", zap.Error(err), zap.String("kept_as", keptAs),
		zap.String("remedy", "if another version of Weir wrote the snapshot, stop Weir, rename the file back and start that version; otherwise remove the file"))
	return store, &File{path: path, store: store, log: log}
}

func load(path string, o memstore.Options) (*memstore.Store, memstore.Loaded, error) {
	// Opening a pipe would block.
	if err := checkRegular(path); err != nil {
		return nil, memstore.Loaded{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, memstore.Loaded{}, err
	}
	defer func() { _ = f.Close() }()
	return memstore.Load(f, o)
}

// quarantine renames a rejected snapshot. It replaces an older one.
func quarantine(path string) (keptAs string, err error) {
	if err := checkRegular(path); err != nil {
		return "", err
	}
	keptAs = path + ".refused"
	return keptAs, os.Rename(path, keptAs)
}

func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file: name a file", path)
	}
	return nil
}

// Run saves the counters at each interval until ctx ends.
func (f *File) Run(ctx context.Context, interval time.Duration) {
	for backoff.Sleep(ctx, interval) == nil {
		f.Save()
	}
}

// Save atomically replaces the file, see [atomicfile.Write]. It logs and counts a failure.
func (f *File) Save() {
	f.saving.Lock()
	defer f.saving.Unlock()
	if f.refused != nil {
		f.reportFailure(f.refused, refusedRemedy)
		return
	}
	since := time.Now()
	var keys int64
	err := atomicfile.Write(f.path, func(w io.Writer) (err error) {
		keys, err = f.store.Save(w)
		return err
	})
	if err != nil {
		f.reportFailure(err, "check that MEMORY_SNAPSHOT names a file, and that its folder exists, is writable and is not full")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.SavedAt, f.stats.Saved = time.Now(), keys
	f.log.Debug("counters saved", zap.Int64("keys", keys), zap.Duration("took_seconds", time.Since(since)))
}

// reportFailure counts and logs a failed save.
func (f *File) reportFailure(err error, remedy string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Failures++
	f.log.Error("counters not saved", zap.Error(err), zap.String("remedy", remedy))
}

// Stats returns the current counts.
func (f *File) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}
