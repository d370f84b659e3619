package main

import (
	"fmt"

	"github.com/weir-rls/weir/internal/receiptkeys"
)

// openReceipts reads the keys of receipts, if the settings enable receipts.
func (p *process) openReceipts() error {
	s := p.settings
	if s.ReceiptHeader == "" {
		return nil
	}
	keys, err := receiptkeys.Open(s.ReceiptKeysFile, p.log)
	if err != nil {
		return fmt.Errorf("RECEIPT_KEYS_FILE: %w", err)
	}
	p.receiptKeys = keys
	p.tasks = append(p.tasks, keys.Watch)
	return nil
}
