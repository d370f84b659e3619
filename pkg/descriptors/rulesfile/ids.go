package rulesfile

// warningIDs are the ids of all warnings, sorted.
var warningIDs []string

func warningID(id string) string {
	warningIDs = append(warningIDs, id)
	return id
}

// IDs of warnings. docs/lint.md has a section for each. "# weir:ignore ID" silences one.
var (
	addressForm          = warningID("address-form")
	besideUnlimited      = warningID("beside-unlimited")
	costCountsDenied     = warningID("cost-counts-denied")
	droppedDocument      = warningID("dropped-document")
	duplicateInRatelimit = warningID("duplicate-in-ratelimit")
	duplicateKey         = warningID("duplicate-key")
	duplicateName        = warningID("duplicate-name")
	forgeableID          = warningID("forgeable-id")
	hiddenBranch         = warningID("hidden-branch")
	joinedKey            = warningID("joined-key")
	keyWithoutValue      = warningID("key-without-value")
	localWithoutReplicas = warningID("local-without-replicas")
	metadataKey          = warningID("metadata-key")
	misplacedKey         = warningID("misplaced-key")
	missingRequests      = warningID("missing-requests")
	modifierWithoutLimit = warningID("modifier-without-limit")
	octalNumber          = warningID("octal-number")
	overlappingCIDR      = warningID("overlapping-cidr")
	overlayWithoutEffect = warningID("overlay-without-effect")
	patternInKey         = warningID("pattern-in-key")
	peekNeverDenied      = warningID("peek-never-denied")
	prefixAsValue        = warningID("prefix-as-value")
	regexValue           = warningID("regex-value")
	ruleWithoutEffect    = warningID("rule-without-effect")
	sharedLease          = warningID("shared-lease")
	similarKey           = warningID("similar-key")
	surroundingSpace     = warningID("surrounding-space")
	templateValue        = warningID("template-value")
	unknownIgnore        = warningID("unknown-ignore")
	unknownReplaces      = warningID("unknown-replaces")
	unreachableRule      = warningID("unreachable-rule")
	unusedIgnore         = warningID("unused-ignore")
	zeroLimit            = warningID("zero-limit")
)

// IDs of faults, which cannot be silenced.
const (
	invalid            = "invalid"             // a fault that no other id describes
	kubernetesManifest = "kubernetes-manifest" // a manifest in place of rules
	syntax             = "syntax"              // a file that is not YAML
)
