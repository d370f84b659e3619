package settings

// Answers are the settings of responses.
type Answers struct {
	ShadowMode              bool    `env:"SHADOW_MODE" help:"Count hits and deny nothing. Set it to try rules, or to turn limiting off."`
	QuotaMode               bool    `env:"QUOTA_MODE" help:"Treat every rule as if it had quota_mode: a request is denied only if all of its descriptors are over their limits."`
	NearLimitRatio          float32 `env:"NEAR_LIMIT_RATIO" default:"0.8" help:"The part of a limit, from 0 to 1, beyond which hits count as near_limit in the metrics."`
	ResponseDynamicMetadata bool    `env:"RESPONSE_DYNAMIC_METADATA" help:"Send Envoy the domain, the descriptors and the metadata of rules as dynamic metadata, for access logs."`

	ResponseHeaders bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" name:"limit-response-headers-enabled" help:"Add headers with limit, remaining hits and reset time to responses, besides those that Envoy adds."`
	LimitHeader     string `env:"LIMIT_LIMIT_HEADER" name:"limit-limit-header" default:"RateLimit-Limit" help:"The name of the header with the limit."`
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" name:"limit-remaining-header" default:"RateLimit-Remaining" help:"The name of the header with the remaining hits."`
	ResetHeader     string `env:"LIMIT_RESET_HEADER" name:"limit-reset-header" default:"RateLimit-Reset" help:"The name of the header with the seconds until the limit resets."`

	StopCacheKeyIncrementWhenOverlimit bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" help:"If one limit denies a request, none of the others is charged. Two kinds of rules are charged all the same: rules in shadow mode, and rules in quota mode if a request is under several. If all of these quotas deny a request, its other limits have been charged."`
}

func (a *Answers) complete(errs *settingErrors) {
	if !(a.NearLimitRatio >= 0 && a.NearLimitRatio <= 1) { // NaN is neither
		errs.add("NEAR_LIMIT_RATIO", "write a number from 0 to 1")
	}
	for variable, name := range map[string]string{
		"LIMIT_LIMIT_HEADER": a.LimitHeader, "LIMIT_REMAINING_HEADER": a.RemainingHeader, "LIMIT_RESET_HEADER": a.ResetHeader,
	} {
		if name == "" {
			errs.add(variable, "a header needs a name")
		}
	}
}
