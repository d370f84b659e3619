// Package receipt encrypts the reason of a denial into a short text that a client can send to the
// operator. Only the keys of the operator open it, without a log and without a server.
//
// A receipt is a version, the id of a key, a random nonce and a box of XChaCha20-Poly1305, as
// base64url. Without the key, nobody can read or change the content of the box.
package receipt

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/weir-rls/weir/pkg/decide"
)

// A Receipt describes the denial of one request.
type Receipt struct {
	Limit        uint64    // the descriptors.Rule.LimitHash of the limit; 0: a limit that the request brought, under no rule
	RulesVersion uint64    // the descriptors.Rules.Version
	Key          uint64    // the descriptors.KeyHash of the counter's key; 0: no counter was read
	Time         time.Time // when the request was denied, in whole milliseconds
	Replica      string    // the last 8 bytes of the replica's name
	Used, Max    int64     // the usage of the key and its bound, each at most 2^56 - 1
	Reason       string    // decide.PenaltyText, or that of the decision; "" for an unknown one
}

// reasons are the reasons of a denial. Their order is part of the format.
var reasons = []string{
	"", decide.OverLimit.String(), decide.NeverFits.String(), decide.PenaltyText, decide.StorePolicy.String(), decide.BadLeaseID.String(),
	decide.TooManyLeases.String(),
}

const (
	version    = 1
	keyIDSize  = 2
	headerSize = 1 + keyIDSize
	// nonceSize bytes of the nonce are random, and the others 0. XChaCha20 derives a key from the
	// first 16 bytes.
	nonceSize   = 16
	replicaSize = 8
	numberSize  = 7
	timeSize    = 6
	plainSize   = 3*8 + timeSize + replicaSize + 2*numberSize + 1
	size        = headerSize + nonceSize + plainSize + chacha20poly1305.Overhead
)

// Size is the length of the text of a receipt.
const Size = (size*8 + 5) / 6

// The errors of [Keys.Open].
var (
	ErrMalformed  = errors.New("this is not a receipt: copy the whole value of the header")
	ErrVersion    = errors.New("the receipt has a version that this program does not know: run the program that made it, or a newer one")
	ErrUnknownKey = errors.New("no key in the file decrypts this receipt: add the key that was in use then; if there was none, the receipt is forged")
	ErrForged     = errors.New("the receipt is forged or damaged: its key does not decrypt it")
)

var encoding = base64.RawURLEncoding.Strict()

// Append appends the text of a receipt, encrypted with the first key, to dst.
func (k *Keys) Append(dst []byte, r *Receipt) []byte {
	var box [size]byte
	first := &k.all[0]
	box[0] = version
	copy(box[1:], first.id[:])
	var nonce [chacha20poly1305.NonceSizeX]byte
	_, _ = rand.Read(nonce[:nonceSize]) // it never fails
	copy(box[headerSize:], nonce[:nonceSize])
	var plain [plainSize]byte
	r.encode(plain[:])
	sealed := first.aead.Seal(box[:headerSize+nonceSize], nonce[:], plain[:], box[:headerSize])
	return encoding.AppendEncode(dst, sealed)
}

// Open returns the receipt in a text. The error is one of the Err values of this package, and
// contains no part of the text.
func (k *Keys) Open(text string) (*Receipt, error) {
	box, err := encoding.DecodeString(strings.TrimSpace(text))
	switch {
	case err != nil || len(box) == 0:
		return nil, ErrMalformed
	case box[0] == version && len(box) != size || len(box) < headerSize+nonceSize+chacha20poly1305.Overhead:
		return nil, ErrMalformed
	case box[0] != version:
		return nil, ErrVersion
	}
	var nonce [chacha20poly1305.NonceSizeX]byte
	copy(nonce[:], box[headerSize:headerSize+nonceSize])
	known := false
	for i := range k.all {
		key := &k.all[i]
		if string(key.id[:]) != string(box[1:headerSize]) {
			continue
		}
		known = true
		if plain, err := key.aead.Open(nil, nonce[:], box[headerSize+nonceSize:], box[:headerSize]); err == nil {
			return decode(plain), nil
		}
	}
	if known {
		return nil, ErrForged
	}
	return nil, ErrUnknownKey
}

func (r *Receipt) encode(b []byte) {
	binary.BigEndian.PutUint64(b, r.Limit)
	binary.BigEndian.PutUint64(b[8:], r.RulesVersion)
	binary.BigEndian.PutUint64(b[16:], r.Key)
	b = b[24:]
	putNumber(b[:timeSize], r.Time.UnixMilli())
	b = b[timeSize:]
	copy(b[:replicaSize], r.Replica[max(0, len(r.Replica)-replicaSize):])
	b = b[replicaSize:]
	putNumber(b[:numberSize], r.Used)
	putNumber(b[numberSize:2*numberSize], r.Max)
	b[2*numberSize] = byte(slices.Index(reasons, r.Reason)) // 255, which decode reads as "", for an unknown one
}

func decode(b []byte) *Receipt {
	r := &Receipt{
		Limit: binary.BigEndian.Uint64(b), RulesVersion: binary.BigEndian.Uint64(b[8:]), Key: binary.BigEndian.Uint64(b[16:]),
	}
	b = b[24:]
	r.Time = time.UnixMilli(number(b[:timeSize])).UTC()
	b = b[timeSize:]
	r.Replica = strings.ToValidUTF8(strings.TrimRight(string(b[:replicaSize]), "\x00"), "?")
	b = b[replicaSize:]
	r.Used, r.Max = number(b[:numberSize]), number(b[numberSize:2*numberSize])
	if i := int(b[2*numberSize]); i < len(reasons) {
		r.Reason = reasons[i]
	}
	return r
}

// putNumber writes n to b, or the nearest number that b can hold.
func putNumber(b []byte, n int64) {
	n = min(max(n, 0), 1<<(8*len(b))-1)
	for i := range b {
		b[len(b)-1-i] = byte(n >> (8 * i))
	}
}

func number(b []byte) (n int64) {
	for _, c := range b {
		n = n<<8 | int64(c)
	}
	return n
}

// CheckAge returns an error if r is older than maxAge at now, or from the future. Clocks may differ
// by five minutes.
func (r *Receipt) CheckAge(now time.Time, maxAge time.Duration) error {
	const skew = 5 * time.Minute
	switch age := now.Sub(r.Time); {
	case age > maxAge:
		return fmt.Errorf("the receipt expired: it was issued at %s, and receipts are valid for %v", r.Time.Format(time.RFC3339), maxAge)
	case age < -skew:
		return fmt.Errorf("the receipt was issued at %s, which is in the future: compare the clocks of this machine and of the server", r.Time.Format(time.RFC3339))
	}
	return nil
}
