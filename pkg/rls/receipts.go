package rls

import (
	"strconv"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/receipt"
)

// Receipts configures the receipts in denials.
type Receipts struct {
	Header  string               // the name of the header
	Keys    func() *receipt.Keys // the keys in force, the first of which encrypts
	Replica string               // the name of this process
	// KeyHashSecret is the secret of [descriptors.KeyHash].
	KeyHashSecret []byte
}

// append appends the header with a receipt.
func (r *Receipts) append(b []byte, d *denial) []byte {
	keys := r.Keys()
	if keys == nil {
		return b
	}
	sent := receipt.Receipt{Time: time.Now(), Replica: r.Replica, Reason: d.reason()}
	sent.RulesVersion, _ = strconv.ParseUint(d.result.Rules.Version(), 16, 64)
	if d.Rule != nil && !d.HasOverride { // 0 stands for a limit that came with the request
		sent.Limit = d.Rule.LimitHash(max(0, d.limitIndex))
	}
	if d.Key != "" {
		sent.Key = descriptors.KeyNumber(r.KeyHashSecret, d.Key)
	}
	if d.limitIndex >= 0 {
		sent.Used, sent.Max = d.Verdicts[d.limitIndex].Used, d.Limits[d.limitIndex].Capacity()
	}
	var text [receipt.Size]byte
	return appendHeader(b, r.Header, string(keys.Append(text[:0], &sent)))
}
