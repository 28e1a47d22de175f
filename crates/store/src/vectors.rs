//! What entries mean to a model that makes vectors of texts.

use tamma_core::ids::{Digest, KnowledgeId};
use uuid::Uuid;

use crate::connection::Store;
use crate::error::Result;

/// The vector of an entry, and the text that it is of: one that was edited has another.
#[derive(Debug, Clone, PartialEq)]
pub struct KnowledgeVector {
    /// The entry.
    pub entry: KnowledgeId,
    /// Of which text it is.
    pub digest: Digest,
    /// The vector.
    pub vector: Vec<f32>,
}

impl Store {
    /// What a model said of some entries, as far as it was asked.
    pub async fn knowledge_vectors(
        &self,
        model: &str,
        entries: &[KnowledgeId],
    ) -> Result<Vec<KnowledgeVector>> {
        let entries: Vec<Uuid> = entries.iter().map(|id| id.0).collect();
        let rows = sqlx::query!(
            "SELECT entry, digest, vector FROM knowledge_vectors
             WHERE model = $1 AND entry = ANY($2)",
            model,
            &entries,
        )
        .fetch_all(&self.lists)
        .await?;
        // A digest that cannot be read is of no text, so that the model is asked again.
        let vectors = rows.into_iter().filter_map(|row| {
            let digest = row.digest.parse().ok()?;
            Some(KnowledgeVector { entry: KnowledgeId(row.entry), digest, vector: row.vector })
        });
        Ok(vectors.collect())
    }

    /// Keeps what a model said of some entries. One that is gone meanwhile is left out.
    pub async fn keep_knowledge_vectors(
        &self,
        model: &str,
        vectors: &[KnowledgeVector],
    ) -> Result<()> {
        let mut writing = self.steps.begin().await?;
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
