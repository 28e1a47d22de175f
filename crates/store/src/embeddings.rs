//! Embeddings of knowledge entries, by model.

use tamma_core::ids::{Digest, KnowledgeId};
use uuid::Uuid;

use crate::connection::Store;
use crate::error::Result;

/// Embedding of an entry. An edited entry has another digest.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryEmbedding {
    /// ID of the entry.
    pub entry: KnowledgeId,
    /// Digest of the embedded text.
    pub digest: Digest,
    /// Embedding vector.
    pub vector: Vec<f32>,
}

impl Store {
    /// Returns the stored embeddings of some entries by one model.
    pub async fn embeddings(
        &self,
        model: &str,
        entries: &[KnowledgeId],
    ) -> Result<Vec<EntryEmbedding>> {
        let entries: Vec<Uuid> = entries.iter().map(|id| id.0).collect();
        let rows = sqlx::query!(
            "SELECT entry, digest, vector FROM knowledge_vectors
             WHERE model = $1 AND entry = ANY($2)",
            model,
            &entries,
        )
        .fetch_all(&self.lists)
        .await?;
        // Skip unreadable digests, so that the model is asked again.
        let vectors = rows.into_iter().filter_map(|row| {
            let digest = row.digest.parse().ok()?;
            Some(EntryEmbedding { entry: KnowledgeId(row.entry), digest, vector: row.vector })
        });
        Ok(vectors.collect())
    }

    /// Saves embeddings of entries by one model. Entries deleted in the meantime are skipped.
    pub async fn save_embeddings(&self, model: &str, vectors: &[EntryEmbedding]) -> Result<()> {
        let mut writing = self.begin_writing().await?;
        for it in vectors {
            sqlx::query!(
                "INSERT INTO knowledge_vectors (entry, model, digest, vector)
                 SELECT id, $2, $3, $4 FROM knowledge WHERE id = $1
                 ON CONFLICT (entry, model)
                 DO UPDATE SET digest = excluded.digest, vector = excluded.vector",
                it.entry.0,
                model,
                it.digest.to_string(),
                &it.vector,
            )
            .execute(&mut *writing)
            .await?;
        }
        writing.commit().await?;
        Ok(())
    }
}
