// A signature in the form of OpenSSF Model Signing (https://github.com/sigstore/model-transparency,
// predicate type model_signing/signature/v1.0), which `model-signing verify key` checks and
// `model-signing sign key` makes:
//
//   Sigstore bundle v0.3 (JSON)
//     dsseEnvelope: DSSE 1.0 (https://github.com/secure-systems-lab/dsse), one signature
//       payload: in-toto statement v1: SHA-256 of files, or of shards of files
//     verificationMaterial.publicKey.hint: SHA-256 of the public key's PEM
//
// ECDSA over P-256, P-384 or P-521 with SHA-256, -384 or -512, by libcrypto. Signatures with a
// certificate or of Sigstore's public service are refused: they name a person, not a key. So are
// those of model-signing before 1.0. Safe for untrusted keys, bundles and files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lib/support/result.h"

struct evp_pkey_st;  // of libcrypto

namespace ktx::trust {

struct BundleKey {
  std::shared_ptr<evp_pkey_st> key;
  std::string hint;  // SHA-256 of its PEM, in hexadecimal digits
};

// "-----BEGIN PUBLIC KEY-----...": as `openssl ec -pubout` writes it.
Result<BundleKey> parse_bundle_key(std::string_view pem);

// Fails where the bundle is of another key, was changed, or does not name exactly these bytes.
// `name`: of the file, where the bundle is of a folder. Hashes shards on `threads` threads, 0: all.
Status verify_bundle(const BundleKey& key, std::string_view bundle, const std::string& name,
                     std::span<const std::byte> bytes, int threads);

// A bundle of one file. `private_pem`: an EC key without a password.
Result<std::string> sign_bundle(std::string_view private_pem, const std::string& name,
                                std::span<const std::byte> bytes);

}  // namespace ktx::trust
