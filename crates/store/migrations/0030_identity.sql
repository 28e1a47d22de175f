-- Accounts, sign-in with identity providers, and access tokens with a label, a limit and an end.
-- Servers of the previous version do not know these tokens and logins, and refuse them.

SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';

-- Accounts of which there is more to say than their name: service accounts, people who have signed in
-- with an identity provider, and everybody who was deactivated.
CREATE TABLE accounts (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    -- person or service.
    kind text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deactivated_by text,
    deactivated_at timestamptz
);

CREATE UNIQUE INDEX accounts_by_name ON accounts (lower(name));

-- Access tokens with a label. Only the hash of a token is kept, and one that was revoked stays as a
-- record.
CREATE TABLE access_tokens (
    id uuid PRIMARY KEY,
    person text NOT NULL,
    label text NOT NULL,
    hash text NOT NULL UNIQUE,
    -- Highest role that it can use. Nothing for those of its owner.
    role text,
    -- Projects in which it can be used. Nothing for all.
    projects uuid [],
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_by text,
    revoked_at timestamptz
);

CREATE INDEX access_tokens_by_person ON access_tokens (lower(person));

ALTER TABLE people ADD COLUMN last_used_at timestamptz;

-- As before, but the last use of a token that is not revoked can be recorded.
CREATE OR REPLACE FUNCTION refuse_token_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF
        TG_OP = 'UPDATE' AND OLD.revoked_at IS NULL
        AND (NEW.id, NEW.name, NEW.hash, NEW.added_by, NEW.added_at)
        = (OLD.id, OLD.name, OLD.hash, OLD.added_by, OLD.added_at)
        AND (
            (
                NEW.revoked_at IS NOT NULL
                AND NEW.last_used_at IS NOT DISTINCT FROM OLD.last_used_at
            )
            OR (NEW.revoked_at IS NULL AND NEW.revoked_by IS NOT DISTINCT FROM OLD.revoked_by)
        )
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'rows of % can be revoked once, and not changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

-- Somebody at an identity provider, and the person that they are here. The subject never changes; names
-- do.
CREATE TABLE identities (
    id uuid PRIMARY KEY,
    issuer text NOT NULL,
    subject text NOT NULL,
    person text NOT NULL,
    -- Operator who linked the two. Nothing where the first sign-in made the person.
    linked_by text,
    -- Groups at the last check, and whether one of them let the person in.
    groups text [] NOT NULL DEFAULT '{}',
    admitted boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    checked_at timestamptz NOT NULL,
    UNIQUE (issuer, subject)
);

CREATE INDEX identities_by_person ON identities (lower(person));

-- A name belongs to the first who signs in with it. Only an operator can give it to another one too.
CREATE UNIQUE INDEX identities_own_names ON identities (lower(person)) WHERE linked_by IS NULL;

-- Sign-ins with an identity provider. Sessions of browsers and of the command line end with theirs.
CREATE TABLE logins (
    id uuid PRIMARY KEY,
    identity uuid NOT NULL REFERENCES identities (id),
    -- Session at the provider, which its logout names.
    sid text,
    -- Tokens of the provider, sealed with a key that is not in the database. Empty after the end.
    tokens text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    checked_at timestamptz NOT NULL,
    -- Until when a server is asking the provider.
    checking_until timestamptz,
    ended_at timestamptz,
    -- signed_out, provider_logout, not_admitted, refused, expired, revoked or deactivated.
    end_reason text
);

CREATE INDEX logins_by_identity ON logins (identity) WHERE ended_at IS NULL;

-- Logins whose tokens are to be deleted, and revoked at their provider.
CREATE INDEX ended_logins_with_tokens ON logins (id) WHERE ended_at IS NOT NULL AND tokens <> '';

-- Sign-ins that have begun: of a browser that went to the provider, or of a device that waits for its
-- person.
CREATE TABLE sign_in_flows (
    -- Hash of the secret that comes back.
    hash text PRIMARY KEY,
    issuer text NOT NULL,
    -- Hash of the cookie of the browser. Nothing for a device.
    browser text,
    return_to text,
    -- Device code of the provider, sealed. Nothing for a browser.
    device_code text,
    interval_seconds integer NOT NULL DEFAULT 5,
    next_poll_at timestamptz,
    client text,
    expires_at timestamptz NOT NULL
);

CREATE INDEX sign_in_flows_by_end ON sign_in_flows (expires_at);

ALTER TABLE sessions ADD COLUMN login uuid;
-- web, cli or link.
ALTER TABLE sessions ADD COLUMN kind text NOT NULL DEFAULT 'web';
-- Program that opened the session, as it calls itself.
ALTER TABLE sessions ADD COLUMN client text;
ALTER TABLE sessions ADD COLUMN last_used_at timestamptz;

-- People who came from an identity provider and have no group there any more that lets them in.
CREATE VIEW lost_people AS
SELECT lower(person) AS name FROM identities GROUP BY lower(person) HAVING NOT bool_or(admitted);

-- Tokens that count, unless they have expired.
CREATE VIEW live_tokens AS
SELECT
    people.hash,
    people.name AS person,
    'own_token' AS method,
    NULL::text AS role,
    NULL::uuid [] AS projects,
    NULL::timestamptz AS expires_at,
    people.last_used_at
FROM people
LEFT JOIN accounts ON lower(accounts.name) = lower(people.name)
WHERE people.revoked_at IS NULL AND accounts.deactivated_at IS NULL
    AND NOT EXISTS (SELECT FROM lost_people WHERE lost_people.name = lower(people.name))
UNION ALL
SELECT
    access_tokens.hash,
    access_tokens.person,
    CASE WHEN accounts.kind = 'service' THEN 'service_token' ELSE 'own_token' END AS method,
    access_tokens.role,
    access_tokens.projects,
    access_tokens.expires_at,
    access_tokens.last_used_at
FROM access_tokens
LEFT JOIN accounts ON lower(accounts.name) = lower(access_tokens.person)
WHERE access_tokens.revoked_at IS NULL AND accounts.deactivated_at IS NULL
    AND NOT EXISTS (SELECT FROM lost_people WHERE lost_people.name = lower(access_tokens.person));

-- Logins that count.
CREATE VIEW live_logins AS
SELECT
    logins.id,
    logins.identity,
    identities.issuer,
    identities.subject,
    identities.person,
    logins.sid,
    logins.created_at,
    logins.checked_at,
    identities.checked_at AS identity_checked_at
FROM logins
INNER JOIN identities ON identities.id = logins.identity
LEFT JOIN accounts ON lower(accounts.name) = lower(identities.person)
WHERE logins.ended_at IS NULL AND identities.admitted AND accounts.deactivated_at IS NULL;
