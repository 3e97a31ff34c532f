#include "lib/trust/signed_plan.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "lib/plan/digests.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/verify_weights.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"

namespace ktx::trust {
namespace {

constexpr size_t kMostKeyText = 16 << 10, kMostSignatureText = 64 << 20;

bool is_file(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0;
}

// What differs between the two forms.
struct Form {
  const char *root_suffix, *suffix, *sign;
};
constexpr Form kForms[] = {{".root.minisig", ".minisig", "minisign -Sm {}"},
                           {".root.sig", ".sig", "ktx-run inspect {} --sign KEY.pem"}};

Status verify_bytes(const SignatureKey& key, const std::string& signature, const std::string& name,
                    std::span<const std::byte> bytes, int threads) {
  const std::string text = KTX_TRY(read_text_file(signature, kMostSignatureText));
  if (const auto* minisign = std::get_if<MinisignKey>(&key)) {
    KTX_TRY(verify_minisign(*minisign, bytes, text));
    return {};
  }
  const Status found = verify_bundle(std::get<BundleKey>(key), text, name, bytes, threads);
  return found ? found : Error{fmt::format("{}: {}", signature, found.error().message)};
}

Status verify_root(const SignatureKey& key, const std::string& path, const std::string& signature,
                   const VerifyOptions& options) {
  const auto plan = KTX_TRY(plan::PlanFile::open(path, {.verify_digests = true}));
  const std::string text = plan::root_text(KTX_TRY(plan::root_digest(plan.view())));
  const std::string name = std::filesystem::path(path).filename().string() + ".root";
  const Status found =
      verify_bytes(key, signature, name, std::as_bytes(std::span(text)), options.threads);
  if (!found) return Error{fmt::format("{}: {}", path, found.error().message)};
  if (!options.weights_later) {
    const Status weights = plan::verify_weights(plan.view(), options.threads);
    if (!weights) return Error{fmt::format("{}: {}", path, weights.error().message)};
  }
  return plan.check();
}

Status verify_whole(const SignatureKey& key, const std::string& path, const std::string& signature,
                    int threads) {
  const MappedFile file = KTX_TRY(MappedFile::open(path));
  const Status found = verify_bytes(key, signature, std::filesystem::path(path).filename().string(),
                                    file.bytes(), threads);
  if (!found) return Error{fmt::format("{}: {}", path, found.error().message)};
  return file.check();
}

}  // namespace

Result<SignatureKey> read_signature_key(const std::string& file_or_key) {
  std::string text = file_or_key;
  if (is_file(file_or_key)) {
    text = KTX_TRY(read_text_file(file_or_key, kMostKeyText));
  } else if (!file_or_key.starts_with("RW")) {
    return Error{
        fmt::format("{}: no such file, and no public key of minisign, which begins with RW",
                    printable(file_or_key))};
  }
  const auto named = [&]<class T>(Result<T> key) -> Result<SignatureKey> {
    if (key) return SignatureKey(key.take());
    return Error{fmt::format("{}: {}", printable(file_or_key), key.error().message)};
  };
  if (text.find("-----BEGIN") != text.npos) return named(parse_bundle_key(text));
  return named(parse_minisign_key(text));
}

Result<SignedPlan> verify_plan(const SignatureKey& key, const std::string& path,
                               const VerifyOptions& options) {
  const Form& form = kForms[key.index()];
  const std::string of_root = path + form.root_suffix, of_all = path + form.suffix;
  SignedPlan plan{path, KTX_TRY(stamp_file(path)), "", false};
  if (is_file(of_root)) {
    plan.signature = of_root;
    plan.weights_to_check = options.weights_later;
    KTX_TRY(verify_root(key, path, of_root, options));
  } else if (is_file(of_all)) {
    plan.signature = of_all;
    KTX_TRY(verify_whole(key, path, of_all, options.threads));
  } else {
    return Error{fmt::format("{}: not signed: there is no {} and no {}; sign it with: {}", path,
                             printable(of_all), printable(of_root),
                             fmt::format(fmt::runtime(form.sign), shell_word(path)))};
  }
  KTX_TRY(check_unchanged(path, plan.stamp));
  return plan;
}

Status verify_weights_later(const SignedPlan& signed_plan, int threads,
                            const std::atomic<bool>& stop) {
  const auto plan = KTX_TRY(plan::PlanFile::open(signed_plan.path));
  KTX_TRY(check_unchanged(signed_plan.path, signed_plan.stamp));
  const Status found = plan::verify_weights(plan.view(), threads, &stop);
  if (!found) return Error{fmt::format("{}: {}", signed_plan.path, found.error().message)};
  KTX_TRY(plan.check());
  return check_unchanged(signed_plan.path, signed_plan.stamp);
}

}  // namespace ktx::trust
