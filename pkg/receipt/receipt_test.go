package receipt

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/weir-rls/weir/internal/must"
)

func keysOf(t testing.TB, lines ...string) *Keys {
	t.Helper()
	keys, err := ParseKeys([]byte(strings.Join(lines, "\n")))
	must.Succeed(t, err)
	return keys
}

var (
	oldKey = strings.Repeat("0a", 32)
	newKey = base64.StdEncoding.EncodeToString([]byte("01234567890123456789012345678901"))
	sealed = Receipt{
		Limit: 0x233773d9648e66dd, RulesVersion: math.MaxUint64, Key: 1, Time: time.Date(2026, 11, 22, 10, 0, 0, 123e6, time.UTC),
		Replica: "c5-x2x4z", Used: 101, Max: 1 << 52, Reason: "penalty",
	}
)

func TestReceiptIsOpenedAsSealed(t *testing.T) {
	keys := keysOf(t, newKey)
	for name, c := range map[string]struct {
		change func(*Receipt)
		want   func(*Receipt)
	}{
		"plain":             {},
		"an empty receipt":  {func(r *Receipt) { *r = Receipt{Time: time.UnixMilli(0).UTC()} }, func(r *Receipt) { *r = Receipt{Time: time.UnixMilli(0).UTC()} }},
		"a short replica":   {func(r *Receipt) { r.Replica = "w" }, func(r *Receipt) { r.Replica = "w" }},
		"a long replica":    {func(r *Receipt) { r.Replica = "weir-7d9f8b6c5-x2x4z" }, nil},
		"a cut rune":        {func(r *Receipt) { r.Replica = "\xc3\xa91234567" }, func(r *Receipt) { r.Replica = "?1234567" }},
		"microseconds":      {func(r *Receipt) { r.Time = r.Time.Add(999 * time.Microsecond) }, nil},
		"the last reason":   {func(r *Receipt) { r.Reason = "too_many_leases" }, func(r *Receipt) { r.Reason = "too_many_leases" }},
		"an unknown reason": {func(r *Receipt) { r.Reason = "else" }, func(r *Receipt) { r.Reason = "" }},
		"numbers too large": {func(r *Receipt) { r.Used, r.Max = math.MaxInt64, -1 }, func(r *Receipt) { r.Used, r.Max = 1<<56-1, 0 }},
	} {
		in, want := sealed, sealed
		if c.change != nil {
			c.change(&in)
		}
		if c.want != nil {
			c.want(&want)
		}
		text := string(keys.Append([]byte("x"), &in))[1:]
		if len(text) != Size || Size > 120 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%s: %d characters: %s", name, len(text), text)
		}
		if got, err := keys.Open(" " + text + "\n"); err != nil || *got != want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got, err, want)
		}
		if again := string(keys.Append(nil, &in)); again == text {
			t.Errorf("%s: two receipts are equal: the nonce is not random", name)
		}
	}
}

// A newer program may seal a reason that this one does not know.
func TestReasonOfANewerProgramIsEmpty(t *testing.T) {
	plain := make([]byte, plainSize)
	plain[plainSize-1] = byte(len(reasons))
	if r := decode(plain); r.Reason != "" {
		t.Errorf("reason %q, want none", r.Reason)
	}
}

func TestReceiptSealedBeforeRotationIsOpened(t *testing.T) {
	before, during, after := keysOf(t, oldKey), keysOf(t, newKey, "# the key of last year", "", oldKey), keysOf(t, newKey)
	text := string(before.Append(nil, &sealed))
	if _, err := during.Open(text); err != nil {
		t.Error(err)
	}
	if _, err := after.Open(text); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("%v, want ErrUnknownKey", err)
	}
	if _, err := after.Open(string(during.Append(nil, &sealed))); err != nil {
		t.Errorf("the first key does not encrypt: %v", err)
	}
}

// A receipt with any other bit is rejected, and no text crashes Open.
func TestForgedReceiptIsRejected(t *testing.T) {
	keys := keysOf(t, newKey, oldKey)
	box, err := encoding.DecodeString(string(keys.Append(nil, &sealed)))
	must.Succeed(t, err)
	for bit := range 8 * len(box) {
		box[bit/8] ^= 1 << (bit % 8)
		want := ErrForged
		switch {
		case bit < 8:
			want = ErrVersion
		case bit < 8*headerSize:
			want = ErrUnknownKey
		}
		if _, err := keys.Open(encoding.EncodeToString(box)); !errors.Is(err, want) {
			t.Errorf("bit %d: %v, want %v", bit, err, want)
		}
		box[bit/8] ^= 1 << (bit % 8)
	}
	text := encoding.EncodeToString(box)
	shortest := headerSize + nonceSize + chacha20poly1305.Overhead // of any version
	for other, want := range map[string]error{
		"": ErrMalformed, " ": ErrMalformed, "x": ErrMalformed, "AQ": ErrMalformed, "été": ErrMalformed,
		text[1:]: ErrMalformed, text[:len(text)-1]: ErrMalformed, text + "AAAA": ErrMalformed, text + "!": ErrMalformed,
		encoding.EncodeToString(make([]byte, shortest-1)): ErrMalformed,
		encoding.EncodeToString(make([]byte, shortest)):   ErrVersion,
		strings.Repeat("A", 1<<20):                        ErrVersion,
	} {
		if _, err := keys.Open(other); !errors.Is(err, want) {
			t.Errorf("Open(%.20q): got error %v, want %v", other, err, want)
		}
	}
	// The last character has four bits that no byte of the box uses.
	for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		other := text[:len(text)-1] + string(last)
		if _, err := keys.Open(other); other != text && err == nil {
			t.Errorf("a receipt that ends with %c instead of %s is opened", last, text[len(text)-1:])
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		random := make([]byte, r.IntN(2*size))
		for i := range random {
			random[i] = byte(r.Uint32())
		}
		if len(random) > 0 {
			random[0] = version
		}
		if _, err := keys.Open(encoding.EncodeToString(random)); err == nil {
			t.Fatalf("%x is opened", random)
		}
	}
}

// Nothing of a receipt can be read without the key.
func TestReceiptShowsNothing(t *testing.T) {
	box, err := encoding.DecodeString(string(keysOf(t, newKey).Append(nil, &sealed)))
	must.Succeed(t, err)
	plain := make([]byte, plainSize)
	sealed.encode(plain)
	const length = 8 // that a random nonce or ciphertext contains 4 plain bytes was seen once
	for i := range len(plain) - length + 1 {
		if part := plain[i : i+length]; bytes.Contains(box, part) && len(bytes.Trim(part, "\x00\xff")) > 0 {
			t.Errorf("the receipt contains the plain bytes %x", part)
		}
	}
}

func TestCheckAgeRejectsExpiredReceipt(t *testing.T) {
	const maxAge = 720 * time.Hour
	for age, want := range map[time.Duration]string{
		0: "", maxAge: "", -5 * time.Minute: "",
		maxAge + time.Second: "the receipt expired: it was issued at 2026-11-22T10:00:00Z, and receipts are valid for 720h0m0s",
		-6 * time.Minute:     "the receipt was issued at 2026-11-22T10:00:00Z, which is in the future: compare the clocks of this machine and of the server",
	} {
		got := ""
		if err := sealed.CheckAge(sealed.Time.Add(age), maxAge); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%v: %q, want %q", age, got, want)
		}
	}
}

// The errors show no key.
func TestKeyFileErrorsNameTheLine(t *testing.T) {
	secret := "c2VjcmV0" // too short
	for file, want := range map[string]string{
		"":                                  "the file has no key: ",
		"# a comment\n\n":                   "the file has no key: ",
		newKey + "\n" + secret:              "line 2 is not a key: ",
		"not base64 !":                      "line 1 is not a key: ",
		strings.Repeat("zz", 32):            "line 1 is not a key: ",
		newKey + "A":                        "line 1 is not a key: ",
		strings.Repeat("x", MaxFileBytes):   "line 1 is not a key: ",
		strings.Repeat("x", MaxFileBytes+1): "the file of keys has more than 65536 bytes: ",
	} {
		_, err := ParseKeys([]byte(file))
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "openssl rand -base64 32") || strings.Contains(err.Error(), secret) {
			t.Errorf("%.40q: %v, want %s", file, err, want)
		}
	}
	raw, err := hex.DecodeString(oldKey)
	must.Succeed(t, err)
	text := string(keysOf(t, oldKey).Append(nil, &sealed))
	for _, form := range []string{strings.ToUpper(oldKey), base64.StdEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw), "  " + oldKey + "\r", "\ufeff" + oldKey} {
		if _, err := keysOf(t, form).Open(text); err != nil {
			t.Errorf("%q is another key: %v", form, err)
		}
	}
}

func BenchmarkReceipt(b *testing.B) {
	keys, memory := keysOf(b, newKey), [Size]byte{}
	b.ReportAllocs()
	for b.Loop() {
		keys.Append(memory[:0], &sealed)
	}
}
