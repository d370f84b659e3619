package receipt

import (
	"bytes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// Keys encrypt and decrypt receipts. They do not change and may be shared.
type Keys struct{ all []key }

type key struct {
	id   [keyIDSize]byte
	aead cipher.AEAD
}

// MaxFileBytes bounds a file of keys.
const MaxFileBytes = 64 << 10

const keyRemedy = "write 32 random bytes in base64 or hex, as openssl rand -base64 32 does"

// ParseKeys reads a file with one key on each line. The first key encrypts, and any of them
// decrypts. Empty lines and lines that begin with # are comments. ParseKeys skips a byte order mark
// at the beginning. The error contains no key.
func ParseKeys(file []byte) (*Keys, error) {
	if len(file) > MaxFileBytes {
		return nil, fmt.Errorf("the file of keys has more than %d bytes: %s on each line", MaxFileBytes, keyRemedy)
	}
	k := &Keys{}
	for i, line := range bytes.Split(bytes.TrimPrefix(file, []byte("\ufeff")), []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		secret := decodeKey(string(line))
		aead, err := chacha20poly1305.NewX(secret)
		if err != nil {
			return nil, fmt.Errorf("line %d is not a key: %s", i+1, keyRemedy)
		}
		added := key{aead: aead}
		sum := sha256.Sum256(append([]byte("weir receipt key id\x00"), secret...))
		copy(added.id[:], sum[:])
		k.all = append(k.all, added)
	}
	if len(k.all) == 0 {
		return nil, errors.New("the file has no key: " + keyRemedy)
	}
	return k, nil
}

// decodeKey returns the bytes of a key, nil if the text is neither hex nor base64.
func decodeKey(text string) []byte {
	if len(text) == hex.EncodedLen(chacha20poly1305.KeySize) {
		secret, _ := hex.DecodeString(text)
		return secret
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if secret, err := encoding.DecodeString(text); err == nil {
			return secret
		}
	}
	return nil
}
