#include "lib/trust/bundle.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "lib/support/json_nesting.h"
#include "lib/support/sha256.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"
#include "lib/trust/strict_base64.h"

namespace ktx::trust {
namespace {

using Json = nlohmann::ordered_json;
using Bytes = std::vector<unsigned char>;

constexpr const char* kBundleType = "application/vnd.dev.sigstore.bundle.v0.3+json";
constexpr const char* kPayloadType = "application/vnd.in-toto+json";
constexpr const char* kStatementType = "https://in-toto.io/Statement/v1";
constexpr const char* kPredicateType = "https://model_signing/signature/v1.0";
constexpr size_t kMostText = 64 << 20;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// ------------------------------------------------------------------------------- keys

using Bio = std::unique_ptr<BIO, int (*)(BIO*)>;
Bio bio_of(std::string_view text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

struct Curve {
  const char* name;
  const EVP_MD* (*digest)();
};
constexpr Curve kCurves[] = {
    {"prime256v1", EVP_sha256}, {"secp384r1", EVP_sha384}, {"secp521r1", EVP_sha512}};

// Null for other curves and kinds of keys.
const EVP_MD* digest_of(EVP_PKEY* key) {
  char name[32] = {};
  if (EVP_PKEY_get_group_name(key, name, sizeof name, nullptr) != 1) return nullptr;
  for (const Curve& curve : kCurves) {
    if (std::string_view(name) == curve.name) return curve.digest();
  }
  return nullptr;
}

// `given`: what it was read from; `other`: what a key is called that was given in its place.
Result<BundleKey> checked_key(EVP_PKEY* pkey, std::string_view given, std::string_view other,
                              const char* instead) {
  BundleKey key{std::shared_ptr<EVP_PKEY>(pkey, EVP_PKEY_free), ""};
  if (!pkey && given.find(other) != given.npos) return Error{instead};
  if (!pkey || !digest_of(pkey)) {
    return Error{
        "not a key of ECDSA over P-256, P-384 or P-521 in PEM without a password; make one "
        "with: openssl ecparam -name prime256v1 -genkey -noout -out key.pem"};
  }
  const Bio out(BIO_new(BIO_s_mem()), BIO_free);
  char* pem = nullptr;
  if (!out || PEM_write_bio_PUBKEY(out.get(), pkey) != 1) return Error{"the key is damaged"};
  const long size = BIO_get_mem_data(out.get(), &pem);
  key.hint = to_hex(KTX_TRY(sha256(bytes_of({pem, static_cast<size_t>(size)}))));
  return key;
}

// DSSE's pre-authentication encoding, which is what is signed.
std::string encoded(std::string_view payload) {
  const std::string_view type = kPayloadType;
  return fmt::format("DSSEv1 {} {} {} {}", type.size(), type, payload.size(), payload);
}

using Context = std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)>;

bool is_signed(const BundleKey& key, std::span<const unsigned char> signature,
               std::string_view payload) {
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const std::string text = encoded(payload);
  return context &&
         EVP_DigestVerifyInit(context.get(), nullptr, digest_of(key.key.get()), nullptr,
                              key.key.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
}

Result<Bytes> signature_of(const BundleKey& key, std::string_view payload) {
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const std::string text = encoded(payload);
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  size_t size = 0;
  Bytes signature;
  if (context &&
      EVP_DigestSignInit(context.get(), nullptr, digest_of(key.key.get()), nullptr,
                         key.key.get()) == 1 &&
      EVP_DigestSign(context.get(), nullptr, &size, data, text.size()) == 1) {
    signature.resize(size);
    if (EVP_DigestSign(context.get(), signature.data(), &size, data, text.size()) == 1) {
      signature.resize(size);
      return signature;
    }
  }
  return Error{"libcrypto of this system does not sign with this key"};
}

// ------------------------------------------------------------------------------- JSON

Result<Json> parse_json(std::string_view text, const char* what) {
  constexpr int kMostNesting = 32;
  if (text.size() > kMostText || json_nesting(text) > kMostNesting ||
      json_member_pairs(text) > kMaxMemberPairs || json_tree_bytes(text) > kMaxTreeBytes) {
    return Error{fmt::format("the {} is larger than any of a plan", what)};
  }
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return Error{fmt::format("the {} is no JSON", what)};
  return json;
}

// What lies at the path, else null.
const Json& at(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNull;
  const Json* found = &json;
  for (const char* key : path) {
    if (!found->is_object() || !found->contains(key)) return kNull;
    found = &(*found)[key];
  }
  return *found;
}

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json& found = at(json, path);
  return found.is_string() ? found.get<std::string>() : "";
}

Status expect(const Json& json, std::initializer_list<const char*> path, std::string_view wanted) {
  const std::string found = text_at(json, path);
  if (found == wanted) return {};
  return Error{fmt::format("its {} is '{}', expected '{}'; sign with model-signing 1.0 or newer",
                           *(path.end() - 1), printable(found), wanted)};
}

// ------------------------------------------------------------------------- statements

// A stretch of a file, and its digest.
struct Shard {
  uint64_t begin = 0, end = 0;
  Digest256 sha256 = {};
};

std::string shard_algorithm(uint64_t shard_bytes) {
  return fmt::format("sha256-sharded-{}", shard_bytes);
}

std::optional<Digest256> digest_from_hex(std::string_view text) {
  Digest256 digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, digest[i], 16);
    if (error != std::errc() || end != digits + 2) return std::nullopt;
  }
  return digest;
}

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "NAME:0:1000"; a file that is signed by itself has the name ".".
std::optional<Shard> shard_of(std::string_view resource, const std::string& name, bool whole,
                              uint64_t size) {
  Shard shard{0, size, {}};
  if (!whole) {
    const size_t last = resource.rfind(':');
    const size_t first =
        last == 0 || last == resource.npos ? resource.npos : resource.rfind(':', last - 1);
    if (first == resource.npos) return std::nullopt;
    const auto begin = number_of(resource.substr(first + 1, last - first - 1));
    const auto end = number_of(resource.substr(last + 1));
    if (!begin || !end) return std::nullopt;
    shard.begin = *begin, shard.end = *end;
    resource = resource.substr(0, first);
  }
  if (resource != "." && resource != name) return std::nullopt;
  return shard;
}

// Those of the file, in order; they are all of it.
Result<std::vector<Shard>> shards_of(const Json& statement, const std::string& name,
                                     uint64_t size) {
  const std::string method = text_at(statement, {"predicate", "serialization", "method"});
  KTX_TRY(expect(statement, {"predicate", "serialization", "hash_type"}, "sha256"));
  if (method != "files" && method != "shards") {
    return Error{fmt::format("its method is '{}', expected files or shards", printable(method))};
  }
  std::string algorithm = "sha256";
  if (method == "shards") {
    // Written as 2048.0 by libraries that have one kind of number.
    constexpr double kMostBytes = 1e15;
    const Json& bytes = at(statement, {"predicate", "serialization", "shard_size"});
    const double size = bytes.is_number() ? bytes.get<double>() : 0;
    if (!(size >= 1 && size <= kMostBytes)) return Error{"it has shards of no size"};
    algorithm = shard_algorithm(static_cast<uint64_t>(size));
  }
  Sha256 all;
  std::vector<Shard> shards;
  const Json& resources = at(statement, {"predicate", "resources"});
  for (const Json& resource : resources.is_array() ? resources : Json::array()) {
    KTX_TRY(expect(resource, {"algorithm"}, algorithm));
    const auto digest = digest_from_hex(text_at(resource, {"digest"}));
    if (!digest) return Error{"it has a digest that is no SHA-256"};
    all.add(std::as_bytes(std::span(*digest)));
    const std::string resource_name = text_at(resource, {"name"});
    if (auto shard = shard_of(resource_name, name, method == "files", size)) {
      shard->sha256 = *digest;
      shards.push_back(*shard);
    }
  }
  const Json& subjects = at(statement, {"subject"});
  if (!subjects.is_array() || subjects.size() != 1 ||
      text_at(subjects[0], {"digest", "sha256"}) != to_hex(KTX_TRY(all.digest()))) {
    return Error{"its subject is not what it lists"};
  }
  std::ranges::sort(shards, {}, &Shard::begin);
  uint64_t covered = 0;
  for (const Shard& shard : shards) {
    if (shard.begin != covered || shard.end <= shard.begin || shard.end > size) {
      return Error{fmt::format("it does not name '{}' of {} bytes", printable(name), size)};
    }
    covered = shard.end;
  }
  if (shards.empty() || covered != size) {
    return Error{fmt::format("it does not name '{}' of {} bytes", printable(name), size)};
  }
  return shards;
}

Status compare(std::span<const Shard> shards, std::span<const std::byte> bytes, int threads) {
  std::vector<Status> found(shards.size());
  ThreadPool pool(std::clamp(static_cast<int>(shards.size()), 1, thread_count(threads)));
  pool.for_each(static_cast<int64_t>(shards.size()), [&](int64_t i, int) {
    const Shard& shard = shards[i];
    const auto digest = sha256(bytes.subspan(shard.begin, shard.end - shard.begin));
    if (!digest) {
      found[i] = digest.error();
    } else if (*digest != shard.sha256) {
      found[i] = Error{
          fmt::format("bytes {} to {} are not those that were signed", shard.begin, shard.end)};
    }
  });
  for (const Status& status : found) KTX_TRY(status);
  return {};
}

// The statement of a bundle that this key signed.
Result<Json> signed_statement(const BundleKey& key, std::string_view bundle) {
  const Json json = KTX_TRY(parse_json(bundle, "signature"));
  KTX_TRY(expect(json, {"mediaType"}, kBundleType));
  const std::string hint = text_at(json, {"verificationMaterial", "publicKey", "hint"});
  if (at(json, {"verificationMaterial", "publicKey"}).is_null()) {
    return Error{"it was not signed with a key; sign with: model-signing sign key"};
  }
  if (!hint.empty() && hint != key.hint) {
    return Error{fmt::format("signed with the key of SHA-256 {}, not with the required {}",
                             printable(hint), key.hint)};
  }
  KTX_TRY(expect(json, {"dsseEnvelope", "payloadType"}, kPayloadType));
  const Json& signatures = at(json, {"dsseEnvelope", "signatures"});
  if (!signatures.is_array() || signatures.size() != 1) {
    return Error{"it must have exactly one signature"};
  }
  const auto payload = from_base64(text_at(json, {"dsseEnvelope", "payload"}));
  const auto signature = from_base64(text_at(signatures[0], {"sig"}));
  if (!payload || !signature) return Error{"it is damaged"};
  const std::string text(payload->begin(), payload->end());
  if (!is_signed(key, *signature, text)) {
    return Error{"it was changed, or made with another key than the required one"};
  }
  const Json statement = KTX_TRY(parse_json(text, "statement"));
  KTX_TRY(expect(statement, {"_type"}, kStatementType));
  KTX_TRY(expect(statement, {"predicateType"}, kPredicateType));
  return statement;
}

// No password is ever given: a prompt would wait for a terminal.
int no_password(char*, int, int, void*) {
  return -1;
}

}  // namespace

Result<BundleKey> parse_bundle_key(std::string_view pem) {
  if (pem.size() > kMostText) return Error{"larger than any key"};
  const Bio in = bio_of(pem);
  return checked_key(PEM_read_bio_PUBKEY(in.get(), nullptr, no_password, nullptr), pem,
                     "PRIVATE KEY-----",
                     "a private key; give the public one: openssl ec -in key.pem -pubout -out "
                     "key.pub");
}

Status verify_bundle(const BundleKey& key, std::string_view bundle, const std::string& name,
                     std::span<const std::byte> bytes, int threads) {
  const Json statement = KTX_TRY(signed_statement(key, bundle));
  return compare(KTX_TRY(shards_of(statement, name, bytes.size())), bytes, threads);
}

Result<std::string> sign_bundle(std::string_view private_pem, const std::string& name,
                                std::span<const std::byte> bytes) {
  const Bio in = bio_of(private_pem);
  const BundleKey key = KTX_TRY(
      checked_key(PEM_read_bio_PrivateKey(in.get(), nullptr, no_password, nullptr), private_pem,
                  "PUBLIC KEY-----", "a public key; give the private one, which it was made of"));
  const Digest256 digest = KTX_TRY(sha256(bytes));
  // The digest of all digests, of which there is one.
  const Digest256 all = KTX_TRY(sha256(std::as_bytes(std::span(digest))));
  const Json resources =
      Json::array({{{"name", "."}, {"algorithm", "sha256"}, {"digest", to_hex(digest)}}});
  const Json statement = {
      {"_type", kStatementType},
      {"subject", Json::array({{{"name", name}, {"digest", {{"sha256", to_hex(all)}}}}})},
      {"predicateType", kPredicateType},
      {"predicate",
       {{"serialization",
         {{"method", "files"}, {"hash_type", "sha256"}, {"allow_symlinks", false}}},
        {"resources", resources}}}};
  const std::string payload = statement.dump(2, ' ', false, Json::error_handler_t::replace);
  const Bytes signature = KTX_TRY(signature_of(key, payload));
  const auto* data = reinterpret_cast<const unsigned char*>(payload.data());
  const Json bundle = {
      {"mediaType", kBundleType},
      {"verificationMaterial",
       {{"publicKey", {{"hint", key.hint}}}, {"tlogEntries", Json::array()}}},
      {"dsseEnvelope",
       {{"payload", to_base64({data, payload.size()})},
        {"payloadType", kPayloadType},
        {"signatures", Json::array({{{"sig", to_base64(signature)}, {"keyid", ""}}})}}}};
  return bundle.dump() + "\n";
}

}  // namespace ktx::trust
