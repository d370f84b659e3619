package settings

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Responses are the settings of responses.
type Responses struct {
	ShadowMode              bool    `env:"SHADOW_MODE" help:"Count hits and deny nothing. Set it to try rules, or to turn limiting off."`
	QuotaMode               bool    `env:"QUOTA_MODE" help:"Treat every rule as if it had quota_mode: a request is denied only if all of its descriptors are over their limits."`
	NearLimitRatio          float32 `env:"NEAR_LIMIT_RATIO" default:"0.8" help:"The fraction of a limit, from 0 to 1, above which hits count as near_limit in the metrics."`
	ResponseDynamicMetadata bool    `env:"RESPONSE_DYNAMIC_METADATA" help:"Send Envoy the domain, the descriptors and the metadata of rules as dynamic metadata, for access logs. If false, Weir sends only the limit of a denied request."`

	ResponseHeaders bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" name:"limit-response-headers-enabled" help:"Add headers for the limit, the remaining hits and the reset time to responses, in addition to those that Envoy adds. Under a funnel with a capacity, the limit is requests_per_unit, and the remaining hits may exceed it."`
	LimitHeader     string `env:"LIMIT_LIMIT_HEADER" name:"limit-limit-header" default:"RateLimit-Limit" help:"The name of the header with the limit."`
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" name:"limit-remaining-header" default:"RateLimit-Remaining" help:"The name of the header with the remaining hits."`
	ResetHeader     string `env:"LIMIT_RESET_HEADER" name:"limit-reset-header" default:"RateLimit-Reset" help:"The name of the header with the seconds until the limit resets."`

	ResponseHeadersStandard string `env:"RESPONSE_HEADERS_STANDARD" placeholder:"draft-11" help:"Add the headers of draft-ietf-httpapi-ratelimit-headers-11 to responses: RateLimit-Policy and RateLimit, and Retry-After to a denial. Turn off the headers of Envoy's filter, which have the same meaning. Default: none."`
	RetryAfterJitter        string `env:"RETRY_AFTER_JITTER" placeholder:"PERCENT" help:"The largest random addition to Retry-After, in percent of the wait, such as 10%. It is rounded up to whole seconds. It spreads the times at which clients return. Retry-After is never shorter than the wait. Default: 0%."`
	ResponseHeaderDeniedBy  string `env:"RESPONSE_HEADER_DENIED_BY" placeholder:"NAME" help:"The name of a response header that names the limit that denies a request. Default: none."`
	ReceiptHeader           string `env:"RECEIPT_HEADER" placeholder:"NAME" help:"The name of a response header with a receipt for a denial. weir explain --receipt opens it with the keys in RECEIPT_KEYS_FILE. Default: none."`
	ReceiptKeysFile         string `env:"RECEIPT_KEYS_FILE" placeholder:"FILE" help:"A file with the receipt keys, one per line, each 32 bytes in base64 or hex. The first key encrypts, and any of them decrypts. Weir reads the file again when it changes."`

	StopCacheKeyIncrementWhenOverlimit bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" help:"If true and one limit denies a request, the limits that allow it are not charged. Rules in shadow mode, and quotas if a request has several, are charged independently."`

	Jitter float64 `kong:"-"` // RETRY_AFTER_JITTER as a fraction, from Validate
}

func (r *Responses) complete(errs *settingErrors) {
	if !(r.NearLimitRatio >= 0 && r.NearLimitRatio <= 1) { // NaN is neither
		errs.require("NEAR_LIMIT_RATIO", r.NearLimitRatio, "be from 0 to 1")
	}
	r.completeLimitHeaders(errs)
	if r.ResponseHeadersStandard != "" && r.ResponseHeadersStandard != "draft-11" {
		errs.add("RESPONSE_HEADERS_STANDARD", "unknown value %q: want draft-11, or remove it", r.ResponseHeadersStandard)
	}
	r.completeJitter(errs)
	r.completeHeader(errs, "RESPONSE_HEADER_DENIED_BY", &r.ResponseHeaderDeniedBy)
	r.completeHeader(errs, "RECEIPT_HEADER", &r.ReceiptHeader)
	switch {
	case r.ReceiptHeader == "":
	case r.ReceiptHeader == r.ResponseHeaderDeniedBy:
		errs.add("RECEIPT_HEADER", "RESPONSE_HEADER_DENIED_BY has the same name: set another")
	case r.ReceiptKeysFile == "":
		errs.add("RECEIPT_HEADER", "a receipt is encrypted with a key: set RECEIPT_KEYS_FILE to a file with the output of openssl rand -base64 32")
	}
}

// completeLimitHeaders validates the names of LIMIT_*_HEADER, if they are used. Their case stays,
// because Envoy converts it.
func (r *Responses) completeLimitHeaders(errs *settingErrors) {
	if !r.ResponseHeaders {
		return
	}
	checkHeader(errs, "LIMIT_LIMIT_HEADER", r.LimitHeader, framingHeaders, "RateLimit-Limit")
	checkHeader(errs, "LIMIT_REMAINING_HEADER", r.RemainingHeader, framingHeaders, "RateLimit-Remaining")
	checkHeader(errs, "LIMIT_RESET_HEADER", r.ResetHeader, framingHeaders, "RateLimit-Reset")
}

// framingHeaders are response headers that describe the body and the connection.
var framingHeaders = []string{
	"connection", "content-encoding", "content-length", "content-range", "content-type", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade",
}

// reservedHeaders are response headers with another meaning.
var reservedHeaders = append([]string{"ratelimit", "ratelimit-policy", "retry-after"}, framingHeaders...)

// completeHeader validates a header name, if it is set, and converts it to lower case, as HTTP/2
// requires.
func (r *Responses) completeHeader(errs *settingErrors, variable string, name *string) {
	if *name = strings.ToLower(*name); *name != "" {
		checkHeader(errs, variable, *name, reservedHeaders, "x-denied-by")
	}
}

// checkHeader requires that name is a header, and none of the reserved ones, which are in lower
// case.
func checkHeader(errs *settingErrors, variable, name string, reserved []string, example string) {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		errs.add(variable, "%q is not the name of a header: want letters, digits and '-'", name)
	case slices.Contains(reserved, strings.ToLower(name)):
		errs.add(variable, "the header %s has another meaning: set another name, such as %s", name, example)
	}
}

// completeJitter parses RETRY_AFTER_JITTER.
func (r *Responses) completeJitter(errs *settingErrors) {
	if r.RetryAfterJitter == "" {
		return
	}
	number, isPercent := strings.CutSuffix(r.RetryAfterJitter, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(percent >= 0 && percent <= 100) { // NaN is neither
		errs.add("RETRY_AFTER_JITTER", "cannot read %q: want a percentage of the wait from 0%% to 100%%, such as 10%%", r.RetryAfterJitter)
	}
	r.Jitter = percent / 100
}
