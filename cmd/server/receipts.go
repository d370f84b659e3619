package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/receipt"
)

// receiptKeys holds the keys that encrypt receipts, and reloads them when their file changes.
type receiptKeys struct {
	file *sources.Watcher
	log  *zap.Logger
	live atomic.Pointer[receipt.Keys]
}

// openReceipts reads the keys of receipts, if the settings enable receipts.
func (p *process) openReceipts() error {
	if p.settings.ReceiptHeader == "" {
		return nil
	}
	r := &receiptKeys{file: sources.NewWatcher(p.settings.ReceiptKeysFile), log: p.log}
	if err := r.load(r.file.Read()); err != nil {
		return fmt.Errorf("RECEIPT_KEYS_FILE: %w", err)
	}
	p.receiptKeys = r
	p.tasks = append(p.tasks, r.watch)
	return nil
}

func (r *receiptKeys) load(files []rulesfile.File, err error) error {
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
	r.live.Store(keys)
	return nil
}

// watch reloads the keys when their file changes, until ctx ends.
func (r *receiptKeys) watch(ctx context.Context) {
	_ = r.file.Watch(ctx, func(files []rulesfile.File, err error) {
		if err := r.load(files, err); err != nil {
			r.log.Error("keys of receipts not reloaded, the old ones stay in use", zap.Error(err))
			return
		}
		r.log.Info("keys of receipts loaded")
	}) // the error is that of ctx
}
