package main

import (
	"fmt"

	"github.com/weir-rls/weir/internal/receiptkeys"
)

// openReceiptKeys reads the keys of receipts. It returns nil unless the settings enable receipts.
func (e *environment) openReceiptKeys() (*receiptkeys.File, error) {
	s := e.settings
	if s.ReceiptHeader == "" {
		return nil, nil
	}
	keys, err := receiptkeys.Open(s.ReceiptKeysFile, e.log)
	if err != nil {
		return nil, fmt.Errorf("RECEIPT_KEYS_FILE: %w", err)
	}
	e.tasks = append(e.tasks, keys.Watch)
	return keys, nil
}
