package loadclient

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// A status is a bit set of facts that headers and trailers report about a request.
type status uint8

const (
	status200 status = 1 << iota
	status429
	grpcOK
	grpcExhausted
)

// headers decodes header blocks. Servers repeat a block as references to HPACK's dynamic table, so
// decoded blocks are cached until the table changes.
type headers struct {
	decoder *hpack.Decoder
	status  status
	text    strings.Builder // the error text of a block
	known   []cachedBlock

	firstError string // the first error text
}

type cachedBlock struct {
	block  []byte
	status status
}

const (
	maxKnown      = 8
	maxBlockBytes = 8
)

func newHeaders() *headers {
	h := &headers{}
	h.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch {
		case f.Name == ":status" && f.Value == "200":
			h.status |= status200
		case f.Name == ":status" && f.Value == "429":
			h.status |= status429
		case f.Name == "grpc-status" && f.Value == "0":
			h.status |= grpcOK
		case f.Name == "grpc-status" && f.Value == "8":
			h.status |= grpcExhausted
			fallthrough
		case f.Value != "" && (f.Name == ":status" || strings.HasPrefix(f.Name, "grpc-")):
			fmt.Fprintf(&h.text, "%s: %s ", f.Name, f.Value)
		}
	})
	return h
}

// errHeaders reports a header block that cannot be decoded.
var errHeaders = errors.New("headers that cannot be read")

// read decodes a block. Blocks must be read in order.
func (h *headers) read(block []byte) (status, error) {
	references := onlyReferences(block)
	if references {
		for i := range h.known {
			if bytes.Equal(h.known[i].block, block) {
				return h.known[i].status, nil
			}
		}
	} else {
		h.known = h.known[:0]
	}
	h.status = 0
	h.text.Reset()
	if _, err := h.decoder.Write(block); err != nil {
		return 0, errors.Join(errHeaders, err)
	}
	if err := h.decoder.Close(); err != nil {
		return 0, errors.Join(errHeaders, err)
	}
	if h.firstError == "" && h.text.Len() > 0 {
		h.firstError = h.text.String()
	}
	if references && (h.text.Len() == 0 || h.status&grpcExhausted != 0) && len(h.known) < maxKnown {
		h.known = append(h.known, cachedBlock{bytes.Clone(block), h.status})
	}
	return h.status, nil
}

// onlyReferences reports whether a block has only one-byte references, which do not change the
// table.
func onlyReferences(block []byte) bool {
	for _, b := range block {
		if b < 0x80 {
			return false
		}
	}
	return len(block) <= maxBlockBytes
}
