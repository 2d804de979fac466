// Verifies sigstore bundles against a public key with @sigstore/verify, without any network.
// stdin: [{"key": PEM, "bundle": text, "artifact": base64 or null}, …]; stdout: [null or error, …].
import { createRequire } from "node:module";
import { createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const require = createRequire(join(process.argv[2], "_"));
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

function fault({ key, bundle, artifact }) {
  try {
    const publicKey = createPublicKey(key);
    const trusted = toTrustMaterial(
      { tlogs: [], certificateAuthorities: [], ctlogs: [], timestampAuthorities: [] },
      () => ({ publicKey, validFor: () => true }),
    );
    const verifier = new Verifier(trusted, {
      ctlogThreshold: 0,
      tlogThreshold: 0,
      timestampThreshold: 0,
    });
    const data = artifact === null ? undefined : Buffer.from(artifact, "base64");
    verifier.verify(toSignedEntity(bundleFromJSON(JSON.parse(bundle)), data));
    return null;
  } catch (error) {
    return String(error.message || error);
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(fault)));
