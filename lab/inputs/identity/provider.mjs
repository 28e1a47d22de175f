// Identity provider of the experiment: oidc-provider, a certified implementation of OpenID Connect.
//
// People and their groups are in memory. PUT /people/<name> with a JSON list of groups changes them, and
// DELETE removes a person, as an administrator would.
//
// usage: provider.mjs <port> <URL of Tamma>

import { createServer } from 'node:http'

import Provider from 'oidc-provider'

const [port, tamma] = process.argv.slice(2)
const issuer = `http://127.0.0.1:${port}`
const people = new Map()

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'tamma',
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
    response_types: ['code'],
    redirect_uris: [`${tamma}/sign-in/protocol/callback`],
    backchannel_logout_uri: `${tamma}/sign-in/protocol/logout`,
    backchannel_logout_session_required: true,
  }],
  scopes: ['openid', 'offline_access'],
  claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
  features: {
    devInteractions: { enabled: true },
    deviceFlow: { enabled: true },
    backchannelLogout: { enabled: true },
    revocation: { enabled: true },
  },
  cookies: { keys: ['a key of the experiment'] },
  ttl: { AccessToken: 45, IdToken: 300, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600, DeviceCode: 300 },
  pkce: { required: () => true },
  // Tamma is on this machine, which the provider refuses to reach otherwise.
  fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options),
  async findAccount (_, id) {
    if (!people.has(id)) return undefined
    return { accountId: id, claims: async () => ({ sub: id, preferred_username: id, groups: people.get(id) }) }
  },
})

provider.on('backchannel.error', (_, error) => console.error('logout', error))
provider.on('server_error', (_, error) => console.error(error))
provider.on('grant.error', (_, error) => console.error('grant', error.message, error.error_detail ?? ''))

const own = provider.callback()
createServer((request, response) => {
  const name = request.url.startsWith('/people/') ? decodeURIComponent(request.url.slice('/people/'.length)) : undefined
  if (!name) return own(request, response)
  if (request.method === 'DELETE') {
    people.delete(name)
    return response.writeHead(204).end()
  }
  let body = ''
  request.on('data', (chunk) => { body += chunk })
  request.on('end', () => {
    people.set(name, JSON.parse(body))
    response.writeHead(204).end()
  })
}).listen(Number(port), '127.0.0.1', () => console.log(`listening at ${issuer}`))
