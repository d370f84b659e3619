package loadclient

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// A said is a bit set of facts that headers and trailers report about a request.
type said uint8

const (
	status200 said = 1 << iota
	status429
	grpcOK
	grpcExhausted
)

// headers decodes header blocks. Servers repeat a block as references to HPACK's dynamic table, so decoded blocks are cached until
// the table changes.
type headers struct {
	decoder *hpack.Decoder
	said    said
	text    strings.Builder // the error text of a block
	known   []known

	complaint string // the first error text
}

type known struct {
	block []byte
	said  said
}

const (
	maxKnown = 8
	maxBlock = 8 // bytes
)

func newHeaders() *headers {
	h := &headers{}
	h.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch {
		case f.Name == ":status" && f.Value == "200":
			h.said |= status200
		case f.Name == ":status" && f.Value == "429":
			h.said |= status429
		case f.Name == "grpc-status" && f.Value == "0":
			h.said |= grpcOK
		case f.Name == "grpc-status" && f.Value == "8":
			h.said |= grpcExhausted
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
func (h *headers) read(block []byte) (said, error) {
	references := onlyReferences(block)
	if references {
		for i := range h.known {
			if bytes.Equal(h.known[i].block, block) {
				return h.known[i].said, nil
			}
		}
	} else {
		h.known = h.known[:0]
	}
	h.said = 0
	h.text.Reset()
	if _, err := h.decoder.Write(block); err != nil {
		return 0, errors.Join(errHeaders, err)
	}
	if err := h.decoder.Close(); err != nil {
		return 0, errors.Join(errHeaders, err)
	}
	if h.complaint == "" && h.text.Len() > 0 {
		h.complaint = h.text.String()
	}
	if references && (h.text.Len() == 0 || h.said&grpcExhausted != 0) && len(h.known) < maxKnown {
		h.known = append(h.known, known{bytes.Clone(block), h.said})
	}
	return h.said, nil
}

// onlyReferences reports whether a block has only one-byte references, which do not change the table.
func onlyReferences(block []byte) bool {
	for _, b := range block {
		if b < 0x80 {
			return false
		}
	}
	return len(block) <= maxBlock
}
