package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// hashedMark follows keyFormat in hashed keys. Other keys have a brace or a digit there.
const hashedMark = 'h'

// hashedBytes is the length of a truncated MAC, 22 letters in a key. Among n keys, the probability
// of a collision is n²/2^129: 10^-19 for ten billion. Collisions cannot be searched for without the
// secret.
const hashedBytes = 16

// A keyHasher replaces texts by their HMAC-SHA256, so that readers of Redis learn no data of users
// and cannot test for a given user.
type keyHasher struct{ macs sync.Pool }

// newKeyHasher returns nil, which hashes nothing, for an empty secret.
func newKeyHasher(secret string) *keyHasher {
	if secret == "" {
		return nil
	}
	key := []byte(secret)
	return &keyHasher{macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key)} }}}
}

// append appends the hashed tag and key of an operation. MACs have a fixed length and need no
// separator.
func (h *keyHasher) append(dst []byte, tag, opKey string) []byte {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	dst = append(dst, hashedMark, '{')
	if tag != "" {
		dst = append(m.append(dst, tag), '}')
	}
	return m.append(dst, opKey)
}

// derive returns a 32-byte key for another purpose. The purpose begins with "weir ", unlike any key
// of an operation and any text that [limiters.NewLeaseID] sums, so their MACs differ.
func (h *keyHasher) derive(purpose string) []byte {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	m.Reset()
	m.Write([]byte(purpose))
	return m.Sum(nil)
}

// A mac is a keyed hash with reusable buffers.
type mac struct {
	hash.Hash
	text, sum []byte
}

func (m *mac) append(dst []byte, text string) []byte {
	m.Reset()
	m.text = append(m.text[:0], text...)
	m.Write(m.text)
	m.sum = m.Sum(m.sum[:0])
	return base64.RawURLEncoding.AppendEncode(dst, m.sum[:hashedBytes])
}
