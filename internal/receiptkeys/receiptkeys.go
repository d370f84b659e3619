// Package receiptkeys keeps the keys that encrypt receipts, and reads them again when their file
// changes.
package receiptkeys

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/receipt"
)

// A File is a file of keys. It is safe for concurrent use.
type File struct {
	watcher *sources.Watcher
	log     *zap.Logger
	current atomic.Pointer[receipt.Keys]
}

// Open reads the keys in the file path.
func Open(path string, log *zap.Logger) (*File, error) {
	f := &File{watcher: sources.NewWatcher(path), log: log}
	return f, f.load(f.watcher.Read())
}

func (f *File) load(files []rulesfile.File, err error) error {
	if err == nil && len(files) != 1 {
		err = errors.New("it is a folder: name one file")
	}
	if err != nil {
		return err
	}
	keys, err := receipt.ParseKeys(files[0].Data)
	if err != nil {
		return err
	}
	f.current.Store(keys)
	return nil
}

// Keys returns the keys that were last read without an error. It does no I/O, because every denial
// needs the keys: that is why they are no reloadfile.Value.
func (f *File) Keys() *receipt.Keys { return f.current.Load() }

// Watch reads the keys when their file changes, until ctx ends. It logs each result.
func (f *File) Watch(ctx context.Context) {
	_ = f.watcher.Watch(ctx, func(files []rulesfile.File, err error) {
		if err := f.load(files, err); err != nil {
			f.log.Error("keys of receipts not reloaded, the old ones stay in use", zap.Error(err))
			return
		}
		f.log.Info("keys of receipts loaded")
	}) // the error is that of ctx
}

// Reload makes Watch read the file now.
func (f *File) Reload() { f.watcher.Reload() }
