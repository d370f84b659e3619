package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// hiddenMark stands after the format where the text is hidden; what is not has a brace or a digit there.
const hiddenMark = 'h'

// hiddenBytes is how much of a MAC is kept, as 22 letters. Two of n keys have the same 128 bits with a chance of n²/2^129,
// of ten billion keys 10^-19, and nobody can look for two without the secret.
const hiddenBytes = 16

// A hider puts HMAC-SHA256 under a secret in the place of texts. Whoever reads Redis can then neither read what users
// sent nor try out whether a key is of one of them.
type hider struct{ macs sync.Pool }

// newHider makes a hider; nil, which hides nothing, if there is no secret.
func newHider(secret string) *hider {
	if secret == "" {
		return nil
	}
	key := []byte(secret)
	return &hider{macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key)} }}}
}

// append appends what stands for the tag and the key of a hit, in braces up to the last. Both have a length of their own,
// so none has to be told.
func (h *hider) append(dst []byte, tag, key string) []byte {
	m := h.macs.Get().(*mac)
	defer h.macs.Put(m)
	dst = append(dst, hiddenMark, '{')
	if tag != "" {
		dst = append(m.append(dst, tag), '}')
	}
	return m.append(dst, key)
}

// A mac is a keyed hash, and room for what goes in and comes out.
type mac struct {
	hash.Hash
	text, sum []byte
}

func (m *mac) append(dst []byte, text string) []byte {
	m.Reset()
	m.text = append(m.text[:0], text...)
	m.Write(m.text)
	m.sum = m.Sum(m.sum[:0])
	return base64.RawURLEncoding.AppendEncode(dst, m.sum[:hiddenBytes])
}
