package rulesfile

// IDs of warnings. docs/lint.md has a section for each. "# weir:ignore ID" silences one.
const (
	addressForm          = "address-form"
	besideUnlimited      = "beside-unlimited"
	costCountsDenied     = "cost-counts-denied"
	droppedDocument      = "dropped-document"
	duplicateInRatelimit = "duplicate-in-ratelimit"
	duplicateKey         = "duplicate-key"
	duplicateName        = "duplicate-name"
	forgeableID          = "forgeable-id"
	hiddenBranch         = "hidden-branch"
	joinedKey            = "joined-key"
	keyWithoutValue      = "key-without-value"
	localWithoutReplicas = "local-without-replicas"
	metadataKey          = "metadata-key"
	misplacedKey         = "misplaced-key"
	missingRequests      = "missing-requests"
	modifierWithoutLimit = "modifier-without-limit"
	octalNumber          = "octal-number"
	overlappingCIDR      = "overlapping-cidr"
	overlayWithoutEffect = "overlay-without-effect"
	patternInKey         = "pattern-in-key"
	peekNeverDenied      = "peek-never-denied"
	prefixAsValue        = "prefix-as-value"
	regexValue           = "regex-value"
	ruleWithoutEffect    = "rule-without-effect"
	sharedLease          = "shared-lease"
	similarKey           = "similar-key"
	surroundingSpace     = "surrounding-space"
	templateValue        = "template-value"
	unknownIgnore        = "unknown-ignore"
	unknownReplaces      = "unknown-replaces"
	unreachableRule      = "unreachable-rule"
	unusedIgnore         = "unused-ignore"
	zeroLimit            = "zero-limit"
)

// warningIDs are the ids of all warnings, sorted.
var warningIDs = []string{
	addressForm,
	besideUnlimited,
	costCountsDenied,
	droppedDocument,
	duplicateInRatelimit,
	duplicateKey,
	duplicateName,
	forgeableID,
	hiddenBranch,
	joinedKey,
	keyWithoutValue,
	localWithoutReplicas,
	metadataKey,
	misplacedKey,
	missingRequests,
	modifierWithoutLimit,
	octalNumber,
	overlappingCIDR,
	overlayWithoutEffect,
	patternInKey,
	peekNeverDenied,
	prefixAsValue,
	regexValue,
	ruleWithoutEffect,
	sharedLease,
	similarKey,
	surroundingSpace,
	templateValue,
	unknownIgnore,
	unknownReplaces,
	unreachableRule,
	unusedIgnore,
	zeroLimit,
}

// IDs of faults, which cannot be silenced.
const (
	invalid            = "invalid"             // a fault that no other id describes
	kubernetesManifest = "kubernetes-manifest" // a manifest in place of rules
	syntax             = "syntax"              // a file that is not YAML
)
