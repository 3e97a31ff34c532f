// Whether a plan is signed with a key, by the first of these files that is beside it:
//
//   key of minisign (Ed25519)        PLAN.root.minisig, PLAN.minisig
//   PEM (ECDSA, OpenSSF bundles)     PLAN.root.sig, PLAN.sig
//
// A signature of the plan is over all of its bytes. One of its root (lib/plan/digests.h) is over
// the line that root_text() gives, which a file PLAN.root would have: the small sections are then
// checked at once, and weights may be checked later.
//
//   const SignatureKey key = KTX_TRY(read_signature_key("release.pub"));
//   const SignedPlan plan = KTX_TRY(verify_plan(key, "m.ktxplan", {}));
//   ... open it ...
//   KTX_TRY(check_unchanged("m.ktxplan", plan.stamp));
//
// Safe for untrusted plans and signatures. Messages begin with PATH.
#pragma once

#include <atomic>
#include <string>
#include <variant>

#include "lib/support/file_stamp.h"
#include "lib/support/result.h"
#include "lib/trust/bundle.h"
#include "lib/trust/minisign.h"

namespace ktx::trust {

using SignatureKey = std::variant<MinisignKey, BundleKey>;

// A file's path, or a key of minisign itself ("RWQ...").
Result<SignatureKey> read_signature_key(const std::string& file_or_key);

struct VerifyOptions {
  bool weights_later = false;  // of plans whose root is signed
  int threads = 0;             // 0: all cores
};

struct SignedPlan {
  std::string path;
  FileStamp stamp;        // what the file was then
  std::string signature;  // the file that says so
  bool weights_to_check = false;
};

Result<SignedPlan> verify_plan(const SignatureKey& key, const std::string& path,
                               const VerifyOptions& options);

// The weights of a plan that was verified without them. Ends early, without an error, once `stop`
// is true.
Status verify_weights_later(const SignedPlan& plan, int threads, const std::atomic<bool>& stop);

}  // namespace ktx::trust
