package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// hashedMark follows the format in keys whose text is hidden. Other keys have a brace or a digit there.
const hashedMark = 'h'

// hashedBytes is how many bytes of a MAC are kept, as 22 letters. Two of n keys have the same 128 bits with a probability
// of n²/2^129: for ten billion keys 10^-19. Without the secret, nobody can search for such keys.
const hashedBytes = 16

// A keyHasher replaces texts by their HMAC-SHA256 under a secret, so readers of Redis can neither read what users sent nor
// test whether a key belongs to a given user.
type keyHasher struct{ macs sync.Pool }

// newKeyHasher returns nil, which hides nothing, if the secret is empty.
func newKeyHasher(secret string) *keyHasher {
	if secret == "" {
		return nil
	}
	key := []byte(secret)
	return &keyHasher{macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key)} }}}
}

// append appends the hidden tag and key of a hit. MACs have a fixed length, so no length is written.
func (h *keyHasher) append(dst []byte, tag, key string) []byte {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	dst = append(dst, hashedMark, '{')
	if tag != "" {
		dst = append(m.append(dst, tag), '}')
	}
	return m.append(dst, key)
}

// derive returns a key of 32 bytes for another purpose. No key of a hit begins with a letter, so none has this MAC.
func (h *keyHasher) derive(purpose string) []byte {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	m.Reset()
	m.Write([]byte(purpose))
	return m.Sum(nil)
}

// A mac is a keyed hash with buffers for its input and output.
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
