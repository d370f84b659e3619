package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/receipt"
)

const closedRules = `domain: ugc
descriptors:
- {key: user_id, rate_limit: {unit: hour, requests_per_unit: 0, name: closed, on_deny: {body: closed}}}
`

func receiptKey(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// openReceipt opens the receipt in a response with the keys of a file.
func openReceipt(t *testing.T, file string, r *ratelimitv3.RateLimitResponse) (*receipt.Receipt, error) {
	t.Helper()
	keys, err := receipt.ParseKeys([]byte(file))
	must.Succeed(t, err)
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == "x-receipt" {
			return keys.Open(h.GetValue())
		}
	}
	t.Fatalf("no receipt in %v", r)
	return nil, nil
}

// The file of keys may change at any time. A file with a fault changes nothing.
func TestReceiptKeysAreReread(t *testing.T) {
	t.Parallel()
	path, keys := filepath.Join(t.TempDir(), "rules.yaml"), filepath.Join(t.TempDir(), "keys")
	write(t, path, closedRules)
	write(t, keys, receiptKey("a"))
	const secret = "HashSecret5-HashSecret5"
	s := startServer(t, "CONFIG_PATH="+path, "RECEIPT_HEADER=X-Receipt", "RECEIPT_KEYS_FILE="+keys, "KEY_HASH_SECRET="+secret, "LOG_LEVEL=debug")
	denied := func() *ratelimitv3.RateLimitResponse {
		t.Helper()
		r, err := s.call("alice")
		if err != nil || r.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
			t.Fatal(r, err)
		}
		return r
	}
	r, err := openReceipt(t, receiptKey("a"), denied())
	must.Succeed(t, err)
	rules, err := rulesfile.Parse(rulesfile.File{Name: "elsewhere.yaml", Data: []byte(closedRules)})
	must.Succeed(t, err)
	rule, i := rules.LimitByHash(r.Limit)
	host, err := os.Hostname()
	if err != nil || rule == nil || rule.Limits[i].Name != "closed" || !strings.HasSuffix(host, r.Replica) || r.Reason != "never_fits" {
		t.Errorf("%+v (rule %v, host %s): %v", r, rule, host, err)
	}
	key := descriptors.Key("ugc", rule, []descriptors.Entry{{Key: "user_id", Value: "alice"}})
	if got := fmt.Sprintf("%016x", r.Key); got != descriptors.KeyHash([]byte(secret), key) {
		t.Errorf("key %s, want %s", got, descriptors.KeyHash([]byte(secret), key))
	}

	write(t, keys, receiptKey("b")+"\n"+receiptKey("a"))
	_, n := s.log.await(t, 0, "keys of receipts loaded")
	if _, err := openReceipt(t, receiptKey("b"), denied()); err != nil {
		t.Errorf("after the change: %v", err)
	}
	write(t, keys, "no key")
	must.Succeed(t, s.cmd.Process.Signal(syscall.SIGHUP))
	line, _ := s.log.await(t, n, "keys of receipts not reloaded, the old ones stay in use")
	if !strings.Contains(line, "line 1 is not a key") {
		t.Errorf("%s\nwant the line of the faulty key", line)
	}
	if _, err := openReceipt(t, receiptKey("b"), denied()); err != nil {
		t.Errorf("after a fault: %v", err)
	}
	mustNotShow(t, []string{receiptKey("a"), receiptKey("b")}, "the log", s.output.String())
}

func TestReceiptSettingErrorsNameTheRemedy(t *testing.T) {
	t.Parallel()
	rules, empty, folder := rulesFile(t), filepath.Join(t.TempDir(), "keys"), t.TempDir()
	write(t, empty, "\n")
	write(t, filepath.Join(folder, "a"), receiptKey("a"))
	write(t, filepath.Join(folder, "b"), receiptKey("b"))
	for file, want := range map[string]string{
		"":                 "RECEIPT_HEADER: a receipt is encrypted with a key: set RECEIPT_KEYS_FILE",
		empty:              "RECEIPT_KEYS_FILE: the file has no key: write 32 random bytes",
		folder:             "RECEIPT_KEYS_FILE: it is a folder: name one file",
		folder + "/absent": "RECEIPT_KEYS_FILE: ",
	} {
		if code, said := runWeir("--config="+rules, "--receipt-header=x-receipt", "--receipt-keys-file="+file); code == 0 || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, %s", file, code, said)
		}
	}
	if code, said := runWeir("--config="+rules, "--response-headers-standard=draft-12"); code == 0 || !strings.Contains(said, "want draft-11") {
		t.Errorf("exit code %d, %s", code, said)
	}
}
