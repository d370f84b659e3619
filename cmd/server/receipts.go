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
	"github.com/weir-rls/weir/pkg/rls"
)

// receiptKeys holds the keys that encrypt receipts, and reloads them when their file changes.
type receiptKeys struct {
	file *sources.Watcher
	log  *zap.Logger
	live atomic.Pointer[receipt.Keys]
}

// openReceipts reads the keys of receipts, if the settings enable receipts. Otherwise it returns
// the zero value.
func (p *process) openReceipts() (rls.Receipts, error) {
	s := p.settings
	if s.ReceiptHeader == "" {
		return rls.Receipts{}, nil
	}
	r := &receiptKeys{file: sources.NewWatcher(s.ReceiptKeysFile), log: p.log}
	if err := r.load(r.file.Read()); err != nil {
		return rls.Receipts{}, fmt.Errorf("RECEIPT_KEYS_FILE: %w", err)
	}
	p.tasks = append(p.tasks, r.watch)
	p.onReload = append(p.onReload, r.file.Reload)
	return rls.Receipts{Header: s.ReceiptHeader, Keys: r.live.Load, Replica: p.hostname, KeyHashSecret: []byte(s.KeyHashSecret)}, nil
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
