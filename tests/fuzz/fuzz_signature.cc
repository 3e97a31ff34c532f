// Reads fuzzer input as what says who signed a plan: a public key, a signature of minisign, a
// bundle of OpenSSF Model Signing, a private key. Nothing that was not signed may be taken.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_signature
//   build-fuzz/tests/fuzz/fuzz_signature FOUND tests/fuzz/corpus/signature
//
// First byte: which of them.
#include <cstdint>
#include <string>

#include "lib/trust/bundle.h"
#include "lib/trust/minisign.h"
#include "lib/trust/strict_base64.h"

namespace {

constexpr const char* kMinisignKey = "RWSxP+RD0AwzrV/AZcxzMTvs16ACwy12FnPAnh4VQc13UV8iiUkcF1kR";
constexpr const char* kPem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEW5aRGdLP9SttFmopdg8CTTkGuJSy\n"
    "peqanUwgp6bwus9shFgYaPygM0eCnpIRyms7G4wuJD2aqbKFO31XUMi31w==\n"
    "-----END PUBLIC KEY-----\n";

const ktx::trust::BundleKey& bundle_key() {
  static const ktx::trust::BundleKey key = [] {
    auto parsed = ktx::trust::parse_bundle_key(kPem);
    if (!parsed) __builtin_trap();
    return parsed.take();
  }();
  return key;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file = "what was not signed";
  const auto bytes = std::as_bytes(std::span(file));
  switch (data[0] % 5) {
    case 0:
      (void)ktx::trust::parse_minisign_key(text);
      (void)ktx::trust::parse_bundle_key(text);
      break;
    case 1:
      if (ktx::trust::verify_minisign(*ktx::trust::parse_minisign_key(kMinisignKey), bytes, text)) {
        __builtin_trap();
      }
      break;
    case 2:
      if (ktx::trust::verify_bundle(bundle_key(), text, "m.ktxplan", bytes, 1)) __builtin_trap();
      break;
    case 3:
      (void)ktx::trust::sign_bundle(text, "m.ktxplan", bytes);
      break;
    default: {
      const auto decoded = ktx::trust::from_base64(text);
      if (decoded && ktx::trust::to_base64(*decoded) != text) __builtin_trap();
    }
  }
  return 0;
}
