// A new key pair of ECDSA, as PEM.
//
//   const EcKeys keys("P-256");
//   dir.write("key.pem", keys.secret);
#pragma once

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>
#include <string>

namespace ktx::testing {

struct EcKeys {
  explicit EcKeys(const char* curve) {
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen(curve), EVP_PKEY_free);
    secret = pem([&](BIO* out) {
      PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    open = pem([&](BIO* out) { PEM_write_bio_PUBKEY(out, key.get()); });
  }
  std::string secret, open;

 private:
  template <class Write>
  static std::string pem(const Write& write) {
    const std::unique_ptr<BIO, int (*)(BIO*)> out(BIO_new(BIO_s_mem()), BIO_free);
    write(out.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(out.get(), &data);
    return {data, static_cast<size_t>(size)};
  }
};

}  // namespace ktx::testing
