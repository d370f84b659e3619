package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/receipt"
)

// receiptFlags are the flags of explain for a receipt.
type receiptFlags struct {
	Receipt string        `placeholder:"TEXT" help:"Open a receipt, the value of RECEIPT_HEADER in a 429. With a descriptor, also compare the key of the receipt with it."`
	Keys    string        `env:"RECEIPT_KEYS_FILE" placeholder:"FILE" help:"With --receipt: the receipt keys."`
	MaxAge  time.Duration `default:"720h" help:"With --receipt: the age beyond which a receipt is expired."`
}

// A denialRecord is the content of a receipt, with the current form of its limit.
type denialRecord struct {
	Time         time.Time `json:"time"`
	Replica      string    `json:"replica"`
	Reason       string    `json:"reason"`
	Used         int64     `json:"used"`
	Max          int64     `json:"max"`
	LimitHash    string    `json:"limit_hash"`
	LimitKnown   bool      `json:"limit_known"` // the rules have the limit
	Domain       string    `json:"domain,omitempty"`
	Rule         string    `json:"rule,omitempty"`
	Limit        string    `json:"limit,omitempty"` // the name, or the index in the rule
	Text         string    `json:"text,omitempty"`  // such as 5 per minute, fixed_window
	Source       string    `json:"source,omitempty"`
	RulesVersion string    `json:"rules_version"`
	SameRules    bool      `json:"same_rules"` // the rules have this version
	KeyHash      string    `json:"key_hash"`
	KeyMatches   *bool     `json:"key_matches,omitempty"` // the key is that of the descriptor in the arguments
	KeyOf        string    `json:"key_of,omitempty"`      // that descriptor
}

func (e *Explain) validateReceipt() error {
	switch {
	case len(e.Config) == 0 || e.Live != "":
		return errors.New("--receipt needs --config with the rules, and cannot be used with --live")
	case e.Request != "":
		return errors.New("--request cannot be used with --receipt: write the descriptor as user_id=42,action=login")
	case e.Keys == "":
		return errors.New("--receipt needs the keys of receipts: set --keys or RECEIPT_KEYS_FILE")
	case len(e.Descriptors) > 1:
		return errors.New("a receipt belongs to one descriptor: write exactly one, such as user_id=42,action=login")
	}
	return nil
}

// openReceipt prints a receipt. It returns [Failed] if the rules lack the limit or the key is that
// of another descriptor.
func (e *Explain) openReceipt(streams Streams) error {
	record, err := e.denial(streams.In)
	if err != nil {
		return err
	}
	err = printResult(streams.Out, e.Output, record, func() string {
		return terminal.PrintableLines(record.text(strings.Join(e.Config, ", ")))
	})
	if err == nil && (!record.LimitKnown || record.KeyMatches != nil && !*record.KeyMatches) {
		return Failed
	}
	return err
}

func (e *Explain) denial(stdin io.Reader) (*denialRecord, error) {
	r, err := e.readReceipt()
	if err != nil {
		return nil, err
	}
	rules, err := e.load(stdin)
	if err != nil {
		return nil, err
	}
	record := &denialRecord{
		Time: r.Time, Replica: r.Replica, Reason: r.Reason, Used: r.Used, Max: r.Max, LimitHash: fmt.Sprintf("%016x", r.Limit),
		RulesVersion: fmt.Sprintf("%016x", r.RulesVersion), KeyHash: fmt.Sprintf("%016x", r.Key),
	}
	record.SameRules = record.RulesVersion == rules.Version()
	rule, i := rules.LimitByHash(r.Limit)
	switch {
	case r.Key == 0:
		record.LimitKnown = true
	case r.Limit == 0:
		record.LimitKnown, record.Limit = true, "override"
	case rule != nil:
		record.setLimit(rule, i)
	}
	if len(e.Descriptors) == 0 || r.Key == 0 {
		return record, nil
	}
	return record, e.compareKey(record, rules, rule)
}

// readReceipt opens the receipt.
func (e *Explain) readReceipt() (*receipt.Receipt, error) {
	data, err := readFile(e.Keys, receipt.MaxFileBytes, "write one key on each line")
	if err != nil {
		return nil, fmt.Errorf("the keys of receipts: %w", err)
	}
	keys, err := receipt.ParseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("the keys of receipts in %s: %w", e.Keys, err)
	}
	r, err := keys.Open(e.Receipt)
	if err != nil {
		return nil, err
	}
	return r, r.CheckAge(time.Now(), e.MaxAge)
}

func (d *denialRecord) setLimit(rule *descriptors.Rule, i int) {
	d.LimitKnown, d.Domain, d.Rule, d.Limit, d.Source = true, rule.Domain, rule.Name, fmt.Sprint(i), rule.Source()
	if i >= len(rule.Limits) {
		return // unlimited now
	}
	l := &rule.Limits[i]
	d.Limit = cmp.Or(l.Name, d.Limit)
	d.Text = l.RateText() + ", " + l.Algorithm()
}

// compareKey compares the key of the receipt with that of the descriptor in the arguments. A
// descriptor under a rule with leases may omit the lease id, which is no part of the key.
func (e *Explain) compareKey(record *denialRecord, rules *descriptors.Rules, rule *descriptors.Rule) error {
	entries, err := descriptors.ParseEntries(e.Descriptors[0])
	if err != nil {
		return fmt.Errorf("descriptor %q: %w", e.Descriptors[0], err)
	}
	domain := record.Domain
	if rule == nil {
		domain, err = e.requestDomain("", rules)
		if err != nil {
			return err
		}
	}
	if rule != nil && rule.UsesLeases() {
		if path := rule.Path(); len(entries) == len(path)-1 {
			entries = append(entries, descriptors.Entry{Key: path[len(entries)].Key})
		}
	}
	matched := rules.Match(domain, entries)
	secret := []byte(e.KeySecret)
	matches := record.KeyHash == descriptors.KeyHash(secret, descriptors.Key(domain, matched, entries)) ||
		record.KeyHash == descriptors.KeyHash(secret, string(descriptors.AppendOverrideKey(nil, domain, matched, entries)))
	record.KeyMatches, record.KeyOf = &matches, e.Descriptors[0]
	return nil
}

// noKeyHash is the hash in the receipt of a denial for which no counter was read.
const noKeyHash = "0000000000000000"

func (d *denialRecord) text(config string) string {
	rule := "rule     unknown: these rules have no limit with the hash " + d.LimitHash + ". Use the rules of that time\n"
	switch {
	case d.KeyHash == noKeyHash:
		rule = "limit    none: the id of the lease has a wrong length\n"
	case d.Rule != "":
		rule = fmt.Sprintf("rule     %s in domain %s (%s)\nlimit    %s: %s\n", d.Rule, d.Domain, d.Source, d.Limit, d.Text)
	case d.LimitKnown:
		rule = "limit    it came with the request, and is not in the rules\n"
	}
	version := "the same as in " + config
	if !d.SameRules {
		version = config + " has other rules, so the numbers above may differ"
	}
	key := ""
	switch {
	case d.KeyMatches == nil:
	case *d.KeyMatches:
		key = ", the key of " + d.KeyOf
	default:
		key = ", which is not the key of " + d.KeyOf
	}
	return fmt.Sprintf("denied   %s by replica %s\nreason   %s: used %d of %d\n%srules    %s: %s\nkey      %s%s\n",
		d.Time.Format("2006-01-02 15:04:05.000 UTC"), d.Replica, d.Reason, d.Used, d.Max, rule, d.RulesVersion, version, d.KeyHash, key)
}
